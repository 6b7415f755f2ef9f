// Kernels of the CUDA device. Each has a CPU twin with the same bits: gpu/cast.h and gpu/host_kernels.h. Free of CUDA headers.
#pragma once
#include "gpu/adam_math.h"
#include "gpu/rank_sum.h"

struct CUstream_st;  // *cudaStream_t

namespace sluice::gpu::cuda {

// Each only enqueues, on a stream of the current device, and returns the cudaError_t of the launch.
int launch_cast_to_bf16(const float* from, uint16_t* to, size_t count, CUstream_st* stream);
int launch_cast_to_fp16(const float* from, uint16_t* to, size_t count, CUstream_st* stream);
int launch_leaf_norms(double* sums, const WireGradient& grad, size_t count, CUstream_st* stream);
int launch_adam(const AdamRun& run, CUstream_st* stream);
int launch_rank_sum(const RankSum& sum, CUstream_st* stream);

// Loads their code on the current device. CUDA loads a kernel at its first launch otherwise, which may wait for the whole device.
int load_kernels();

}  // namespace sluice::gpu::cuda
