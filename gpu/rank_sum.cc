// Compiled with -O3 (gpu/CMakeLists.txt): the compiler turns the loops into vector code once per target.
#include "gpu/rank_sum.h"

#include <algorithm>

namespace sluice::gpu {
namespace {

constexpr size_t kBlock = 1024;  // elements whose sums stay in the first cache

#define SLUICE_FLAT __attribute__((always_inline)) inline

template <WireType type, bool first>
SLUICE_FLAT void add_part(float* __restrict total, const void* __restrict part, size_t begin, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float value = math::load(part, type, begin + i);
    total[i] = first ? value : math::add(total[i], value);
  }
}

template <WireType type>
SLUICE_FLAT void store(const float* __restrict total, void* __restrict to, size_t begin, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float value = math::canonical(total[i]);
    if (type == WireType::fp32)
      static_cast<float*>(to)[begin + i] = value;
    else
      static_cast<uint16_t*>(to)[begin + i] = type == WireType::bf16 ? math::to_bf16(value) : math::to_half(value);
  }
}

template <WireType from, WireType to>
SLUICE_FLAT void sum_loop(const RankSum& sum) {
  alignas(64) float total[kBlock];
  for (size_t begin = 0; begin < sum.count; begin += kBlock) {
    const size_t count = std::min(kBlock, sum.count - begin);
    add_part<from, true>(total, math::part_of(sum, 0), begin, count);
    for (int rank = 1; rank < sum.world; ++rank) add_part<from, false>(total, math::part_of(sum, rank), begin, count);
    store<to>(total, sum.to, begin, count);
  }
}

#undef SLUICE_FLAT

#if defined(__x86_64__)
template <WireType from, WireType to>
__attribute__((target("avx2"))) void sum_avx2(const RankSum& sum) {
  sum_loop<from, to>(sum);
}

template <WireType from, WireType to>
__attribute__((target("avx512f,avx512bw,avx512vl,prefer-vector-width=512"))) void sum_avx512(const RankSum& sum) {
  sum_loop<from, to>(sum);
}
#endif

template <WireType from, WireType to>
void sum_as(const RankSum& sum) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return sum_avx512<from, to>(sum);
  if (__builtin_cpu_supports("avx2")) return sum_avx2<from, to>(sum);
#endif
  sum_loop<from, to>(sum);
}

template <WireType from>
void sum_from(const RankSum& sum) {
  switch (sum.to_type) {
    case WireType::bf16: return sum_as<from, WireType::bf16>(sum);
    case WireType::fp16: return sum_as<from, WireType::fp16>(sum);
    case WireType::fp32: return sum_as<from, WireType::fp32>(sum);
  }
}

}  // namespace

void rank_sum(const RankSum& sum) {
  switch (sum.type) {
    case WireType::bf16: return sum_from<WireType::bf16>(sum);
    case WireType::fp16: return sum_from<WireType::fp16>(sum);
    case WireType::fp32: return sum_from<WireType::fp32>(sum);
  }
}

}  // namespace sluice::gpu
