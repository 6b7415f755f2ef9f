// The sum over ranks: fp32, in rank order, so that its bits depend on no algorithm and no transport. One text for nvcc and for the
// host's compiler. Plain C++17.
#pragma once
#include "gpu/adam_math.h"
#include "gpu/half_math.h"

namespace sluice::gpu {

// One contribution from each rank. Device memory; `to` may be `own` when their types are equal, and overlaps nothing else.
struct RankSum {
  void* to = nullptr;
  WireType to_type = WireType::fp32;
  const void* own = nullptr;     // of `rank`
  const void* others = nullptr;  // of the other ranks in their order, `stride` bytes apart
  size_t stride = 0;
  int rank = 0, world = 1;
  WireType type = WireType::bf16;  // of the contributions
  size_t count = 0;                // elements
};

// to[i] = round(((part_0[i] + part_1[i]) + part_2[i]) + ...), each sum in fp32, rounded once to to_type (to nearest even). A NaN is
// stored as the one positive quiet NaN without payload. The CPU's twin of the kernel; the same bits on every CPU.
void rank_sum(const RankSum& sum);

namespace math {

SLUICE_HOST_DEVICE const void* part_of(const RankSum& sum, int rank) {
  if (rank == sum.rank) return sum.own;
  const int index = rank < sum.rank ? rank : rank - 1;
  return static_cast<const unsigned char*>(sum.others) + static_cast<size_t>(index) * sum.stride;
}

SLUICE_HOST_DEVICE void sum_element(const RankSum& sum, size_t i) {
  float total = load(part_of(sum, 0), sum.type, i);
  for (int rank = 1; rank < sum.world; ++rank) total = add(total, load(part_of(sum, rank), sum.type, i));
  total = canonical(total);
  if (sum.to_type == WireType::fp32)
    static_cast<float*>(sum.to)[i] = total;
  else
    static_cast<uint16_t*>(sum.to)[i] = sum.to_type == WireType::bf16 ? to_bf16(total) : to_half(total);
}

}  // namespace math
}  // namespace sluice::gpu
