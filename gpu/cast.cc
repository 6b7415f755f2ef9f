// Compiled with -O3 (gpu/CMakeLists.txt): the compiler turns the loop into vector code once per target.
#include "gpu/cast.h"

#include "base/bf16.h"
#include "gpu/half_math.h"

namespace sluice::gpu {
namespace {

struct ToBf16 {
  static uint16_t round(float value) { return base::float_to_bf16(value); }
};
struct ToFp16 {
  static uint16_t round(float value) { return math::to_half(value); }
};

template <class To>
__attribute__((always_inline)) inline void cast_loop(const float* __restrict from, uint16_t* __restrict to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = To::round(from[i]);
}

#if defined(__x86_64__)
template <class To>
__attribute__((target("avx2"))) void cast_avx2(const float* from, uint16_t* to, size_t count) {
  cast_loop<To>(from, to, count);
}

template <class To>
__attribute__((target("avx512f,avx512bw,avx512vl,prefer-vector-width=512"))) void cast_avx512(const float* from, uint16_t* to,
                                                                                              size_t count) {
  cast_loop<To>(from, to, count);
}
#endif

template <class To>
void cast(const float* from, uint16_t* to, size_t count) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return cast_avx512<To>(from, to, count);
  if (__builtin_cpu_supports("avx2")) return cast_avx2<To>(from, to, count);
#endif
  cast_loop<To>(from, to, count);
}

}  // namespace

void cast_to_bf16(const float* from, uint16_t* to, size_t count) { cast<ToBf16>(from, to, count); }
void cast_to_fp16(const float* from, uint16_t* to, size_t count) { cast<ToFp16>(from, to, count); }

}  // namespace sluice::gpu
