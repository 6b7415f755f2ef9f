#include "engine/embedding.h"

#include <ATen/ops/index_select.h>

#include "engine/cpu_dispatch.h"
#include "engine/tensor_math.h"

namespace sluice::engine {
namespace {
constexpr int64_t kColumns = 64;  // a thread's share of every row: no two threads meet in one row
}

at::Tensor gather_rows(const at::Tensor& matrix, const at::Tensor& tokens) {
  return at::index_select(matrix, 0, tokens.reshape({-1}))
      .view({tokens.size(0), tokens.size(1), matrix.size(1)});
}

void add_row_grads(const at::Tensor& grad_output, const at::Tensor& tokens, std::optional<int64_t> pad,
                   const at::Tensor& grad) {
  if (grad_output.is_cuda())
    return tensor_math::add_rows(grad_output.reshape({-1, grad.size(1)}), tokens.reshape({-1}), pad, grad);
  const gpu::cpu::Element type = element_type(grad_output);
  const at::Tensor rows = grad_output.contiguous(), ids = tokens.contiguous();
  const int64_t width = grad.size(1), vocab = grad.size(0), count = ids.numel();
  const auto* id = ids.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i)
    SLUICE_CHECK(id[i] >= 0 && id[i] < vocab, "token id outside the vocabulary");
  const auto* from = static_cast<const std::byte*>(rows.const_data_ptr());
  float* sum = grad.data_ptr<float>();
  const int64_t row_bytes = width * rows.element_size();
  parallel_pieces(width, kColumns, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < count; ++i) {
      if (pad && id[i] == *pad) continue;
      gpu::cpu::add_to_fp32(type, from + i * row_bytes, sum + id[i] * width, begin, end);
    }
  });
}

}  // namespace sluice::engine
