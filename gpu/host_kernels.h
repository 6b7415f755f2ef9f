// The CPU twins of the device kernels (gpu/cuda_kernels.h): the same bits, on host memory. What the emulated device runs.
#pragma once
#include "gpu/adam_math.h"

namespace sluice::gpu {

// sums[leaf] for every leaf of kLeafElements. A gradient that is not finite shows as a sum that is not.
void leaf_norms(double* sums, const WireGradient& grad, size_t count);
void adam(const AdamRun& run);

}  // namespace sluice::gpu
