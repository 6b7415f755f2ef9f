// Compiled with -O3 (gpu/CMakeLists.txt): the compiler turns the loop into vector code once per target.
#include "gpu/cast.h"

#include "base/bf16.h"

namespace sluice::gpu {
namespace {

__attribute__((always_inline)) inline void cast_loop(const float* __restrict from, uint16_t* __restrict to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = base::float_to_bf16(from[i]);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void cast_avx2(const float* from, uint16_t* to, size_t count) { cast_loop(from, to, count); }

__attribute__((target("avx512f,avx512bw,avx512vl,prefer-vector-width=512"))) void cast_avx512(const float* from, uint16_t* to,
                                                                                              size_t count) {
  cast_loop(from, to, count);
}
#endif

}  // namespace

void cast_to_bf16(const float* from, uint16_t* to, size_t count) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return cast_avx512(from, to, count);
  if (__builtin_cpu_supports("avx2")) return cast_avx2(from, to, count);
#endif
  cast_loop(from, to, count);
}

}  // namespace sluice::gpu
