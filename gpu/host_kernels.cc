#include "gpu/host_kernels.h"

#include <algorithm>
#include <array>
#include <limits>

namespace sluice::gpu {
namespace {

double leaf_norm(const WireGradient& grad, size_t begin, size_t count) {
  std::array<double, kNormLanes> lanes{};
  for (size_t lane = 0; lane < kNormLanes; ++lane) lanes[lane] = math::lane_sum(grad, begin, count, lane);
  for (size_t width = kNormLanes / 2; width > 0; width /= 2)
    for (size_t i = 0; i < width; ++i) lanes[i] = math::add(lanes[i], lanes[i + width]);
  return std::isnan(lanes[0]) ? std::numeric_limits<double>::quiet_NaN() : lanes[0];
}

}  // namespace

void leaf_norms(double* sums, const WireGradient& grad, size_t count) {
  for (size_t begin = 0; begin < count; begin += kLeafElements)
    sums[begin / kLeafElements] = leaf_norm(grad, begin, std::min(kLeafElements, count - begin));
}

void adam(const AdamRun& run) {
  for (size_t i = 0; i < run.count; ++i) math::adam_element(run, i);
}

}  // namespace sluice::gpu
