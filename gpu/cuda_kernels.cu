// C++17 (CMake 3.25 knows no C++20 for nvcc 13). The arithmetic is gpu/adam_math.h's.
#include "gpu/cuda_kernels.h"

#include <cuda_runtime.h>

namespace sluice::gpu::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr size_t kMaxBlocks = 4096;  // the rest by grid stride

unsigned blocks_for(size_t count) {
  const size_t blocks = (count + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

__device__ size_t first_index() { return static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ size_t index_stride() { return static_cast<size_t>(gridDim.x) * blockDim.x; }

__global__ void cast_kernel(const float* __restrict__ from, uint16_t* __restrict__ to, size_t count) {
  for (size_t i = first_index(); i < count; i += index_stride()) to[i] = math::to_bf16(from[i]);
}

__global__ void cast_half_kernel(const float* __restrict__ from, uint16_t* __restrict__ to, size_t count) {
  for (size_t i = first_index(); i < count; i += index_stride()) to[i] = math::to_half(from[i]);
}

// A block is a leaf, a thread a lane: consecutive threads read consecutive elements.
__global__ void __launch_bounds__(kNormLanes) leaf_norm_kernel(double* sums, WireGradient grad, size_t count) {
  __shared__ double lanes[kNormLanes];
  const size_t begin = blockIdx.x * kLeafElements, left = count - begin;
  const unsigned lane = threadIdx.x;
  lanes[lane] = math::lane_sum(grad, begin, left < kLeafElements ? left : kLeafElements, lane);
  for (unsigned width = kNormLanes / 2; width > 0; width /= 2) {
    __syncthreads();
    if (lane < width) lanes[lane] = math::add(lanes[lane], lanes[lane + width]);
  }
  if (lane == 0) sums[blockIdx.x] = isnan(lanes[0]) ? __longlong_as_double(0x7ff8000000000000ll) : lanes[0];
}

__global__ void adam_kernel(AdamRun run) {
  for (size_t i = first_index(); i < run.count; i += index_stride()) math::adam_element(run, i);
}

__global__ void rank_sum_kernel(RankSum sum) {
  for (size_t i = first_index(); i < sum.count; i += index_stride()) math::sum_element(sum, i);
}

}  // namespace

int launch_cast_to_bf16(const float* from, uint16_t* to, size_t count, CUstream_st* stream) {
  if (count == 0) return cudaSuccess;
  cast_kernel<<<blocks_for(count), kThreads, 0, stream>>>(from, to, count);
  return cudaGetLastError();
}

int launch_cast_to_fp16(const float* from, uint16_t* to, size_t count, CUstream_st* stream) {
  if (count == 0) return cudaSuccess;
  cast_half_kernel<<<blocks_for(count), kThreads, 0, stream>>>(from, to, count);
  return cudaGetLastError();
}

int launch_leaf_norms(double* sums, const WireGradient& grad, size_t count, CUstream_st* stream) {
  if (count == 0) return cudaSuccess;
  const size_t leaves = (count + kLeafElements - 1) / kLeafElements;
  leaf_norm_kernel<<<static_cast<unsigned>(leaves), kNormLanes, 0, stream>>>(sums, grad, count);
  return cudaGetLastError();
}

int launch_adam(const AdamRun& run, CUstream_st* stream) {
  if (run.count == 0) return cudaSuccess;
  adam_kernel<<<blocks_for(run.count), kThreads, 0, stream>>>(run);
  return cudaGetLastError();
}

int launch_rank_sum(const RankSum& sum, CUstream_st* stream) {
  if (sum.count == 0) return cudaSuccess;
  rank_sum_kernel<<<blocks_for(sum.count), kThreads, 0, stream>>>(sum);
  return cudaGetLastError();
}

int load_kernels() {
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, cast_kernel);
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, leaf_norm_kernel);
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, cast_half_kernel);
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, adam_kernel);
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, rank_sum_kernel);
  return error;
}

}  // namespace sluice::gpu::cuda
