// Floating-point arithmetic with the same bits from nvcc and from the host's compiler: every operation rounded as written, never
// contracted. Plain C++17.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define SLUICE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define SLUICE_HOST_DEVICE inline
#endif

namespace sluice::gpu::math {

SLUICE_HOST_DEVICE float from_bits(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
#endif
}

SLUICE_HOST_DEVICE uint32_t to_bits(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
#endif
}

#if defined(__CUDA_ARCH__)
__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float mul(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float mul_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ float divide(float a, float b) { return __fdiv_rn(a, b); }
__device__ __forceinline__ float root(float a) { return __fsqrt_rn(a); }
__device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ double mul(double a, double b) { return __dmul_rn(a, b); }
#else
SLUICE_HOST_DEVICE float add(float a, float b) { return a + b; }
SLUICE_HOST_DEVICE float mul(float a, float b) { return a * b; }
SLUICE_HOST_DEVICE float mul_add(float a, float b, float c) { return std::fma(a, b, c); }
SLUICE_HOST_DEVICE float divide(float a, float b) { return a / b; }
SLUICE_HOST_DEVICE float root(float a) { return std::sqrt(a); }
SLUICE_HOST_DEVICE double add(double a, double b) { return a + b; }
SLUICE_HOST_DEVICE double mul(double a, double b) { return a * b; }
#endif

SLUICE_HOST_DEVICE bool is_nan(uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }

// A NaN is stored as 0x7FC00000: which payload survives depends on the machine.
SLUICE_HOST_DEVICE float canonical(float value) { return is_nan(to_bits(value)) ? from_bits(0x7fc00000u) : value; }

}  // namespace sluice::gpu::math
