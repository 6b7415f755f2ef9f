#include "engine/dropout.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "base/hash.h"
#include "engine/cpu_dispatch.h"
#include "engine/tensor_math.h"

namespace sluice::engine {
namespace {

using gpu::cpu::Dropout;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRows = 32;

// x undefined: zeros.
at::Tensor add_dropped(const at::Tensor& x, const at::Tensor& update, const Dropout& dropout) {
  if (update.is_cuda()) {
    const at::Tensor value = tensor_math::dropped(update, dropout);
    return x.defined() ? at::add(x, value) : value;
  }
  const at::Tensor from = update.contiguous();
  at::Tensor y = at::empty_like(from);
  const gpu::cpu::DropoutAdd op{element_type(from), from.size(-1), dropout, x.defined() ? x.const_data_ptr() : nullptr,
                                from.const_data_ptr(), y.data_ptr()};
  parallel_pieces(from.numel() / from.size(-1), kRows, [&](int64_t begin, int64_t end) { gpu::cpu::dropout_add(op, begin, end); });
  return y;
}

struct DropoutAddFunction : torch::autograd::Function<DropoutAddFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& update, const Dropout& dropout) {
    ctx->saved_data["key"] = static_cast<int64_t>(dropout.key);
    ctx->saved_data["threshold"] = static_cast<int64_t>(dropout.threshold);
    ctx->saved_data["scale"] = static_cast<double>(dropout.scale);
    return add_dropped(x, update, dropout);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const Dropout dropout{static_cast<uint64_t>(ctx->saved_data["key"].toInt()),
                          static_cast<uint32_t>(ctx->saved_data["threshold"].toInt()),
                          static_cast<float>(ctx->saved_data["scale"].toDouble())};
    return {grads[0], add_dropped({}, grads[0], dropout), {}};
  }
};

}  // namespace

Dropout make_dropout(double probability, const std::optional<RandomKey>& key, uint32_t block, DropoutPlace place) {
  if (!key || probability <= 0) return {};
  const uint64_t numbers[] = {key->seed, key->step, key->micro, block, static_cast<uint64_t>(place)};
  const double threshold = std::clamp(std::round(probability * 0x1p32), 1.0, 0x1p32 - 1);
  return {base::xxh3(numbers, sizeof numbers), static_cast<uint32_t>(threshold),
          static_cast<float>(1 / (1 - threshold * 0x1p-32))};
}

at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& update, const Dropout& dropout) {
  return dropout.active() ? DropoutAddFunction::apply(x, update, dropout) : at::add(x, update);
}

at::Tensor dropped(const at::Tensor& x, const Dropout& dropout) {
  return dropout.active() ? add_dropped({}, x, dropout) : x;
}

}  // namespace sluice::engine
