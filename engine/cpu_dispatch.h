// From tensors to the raw-pointer kernels of gpu/cpu_kernels.h, over LibTorch's threads.
#pragma once
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "gpu/cpu_kernels.h"

namespace sluice::engine {

inline gpu::cpu::Element element_type(const at::Tensor& t) {
  if (t.scalar_type() == at::kBFloat16) return gpu::cpu::Element::bf16;
  if (t.scalar_type() == at::kHalf) return gpu::cpu::Element::fp16;
  SLUICE_CHECK(t.scalar_type() == at::kFloat, "the compute type is bf16, fp16 or fp32");
  return gpu::cpu::Element::fp32;
}

// body(begin, end) over [0, count) in fixed pieces of `grain`, whatever the number of threads.
template <class Body>
void parallel_pieces(int64_t count, int64_t grain, const Body& body) {
  const int64_t pieces = (count + grain - 1) / grain;
  at::parallel_for(0, pieces, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) body(i * grain, std::min(count, (i + 1) * grain));
  });
}

}  // namespace sluice::engine
