#include "engine/layered_model.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"
#include "engine/loss_head.h"

namespace sluice::engine {

using offload::BlockPlace;

at::Tensor view_value(const BlockPlace& block, size_t index, const BlockWeights& w) {
  const offload::TensorPlace& place = block.tensors[index];
  const uint64_t start = place.offset + (place.trainable ? 0 : block.padded_trainable());
  return w.flat.narrow(0, static_cast<int64_t>(start), static_cast<int64_t>(place.count)).view(place.shape);
}

at::Tensor view_gradient(const BlockPlace& block, size_t index, const BlockWeights& w) {
  const offload::TensorPlace& place = block.tensors[index];
  if (!place.trainable || !w.grad.defined()) return {};
  return w.grad.narrow(0, static_cast<int64_t>(place.offset), static_cast<int64_t>(place.count))
      .view(place.shape);
}

int find_tensor(const BlockPlace& block, const std::string& suffix) {
  for (size_t i = 0; i < block.tensors.size(); ++i) {
    if (block.tensors[i].name.ends_with("." + suffix)) return static_cast<int>(i);
  }
  return -1;
}

Parameter LayerWeights::operator[](int tensor) const {
  const auto index = static_cast<size_t>(tensor);
  // detach() shares the version counter of `flat`, so a refill under a live graph is noticed.
  Parameter p{view_value(block_, index, weights_).detach(), slots_ ? (*slots_)[index] : GradientSlotPtr()};
  p.value.set_requires_grad(p.slot.defined());
  return p;
}

LayeredModel::LayeredModel(const HfConfig& config, const offload::Layout& layout, const ComputeOptions& options)
    : config_(config),
      options_(options),
      blocks_(layout.blocks()),
      tied_(layout.tied()),
      lowest_trainable_(layout.lowest_trainable_block()),
      norm_bias_(find_tensor(blocks_.back(), "bias")) {
  SLUICE_CHECK(blocks_.size() == static_cast<size_t>(config.layers) + 2, "the layout is of another model");
}

at::Tensor LayeredModel::forward(uint32_t layer, const BlockWeights& w, const at::Tensor& x, const MicroBatch& batch) {
  const at::NoGradGuard no_grad;
  return run_layer(layer, LayerWeights(blocks_.at(layer + 1), w, nullptr), x, batch);
}

LayerGraph LayeredModel::forward_graph(uint32_t layer, const BlockWeights& w, const at::Tensor& x, const MicroBatch& batch) {
  const at::AutoGradMode with_grad(true);
  LayerGraph graph;
  graph.input = x.detach();
  graph.input.set_requires_grad(needs_input_grad(layer));
  const auto slots = std::make_shared<GradientSlots>();
  for (const auto& place : blocks_.at(layer + 1).tensors) {
    slots->push_back(place.trainable ? c10::make_intrusive<GradientSlot>() : GradientSlotPtr());
  }
  graph.output = run_layer(layer, LayerWeights(blocks_.at(layer + 1), w, slots.get()), graph.input, batch);
  graph.state = slots;
  return graph;
}

at::Tensor LayeredModel::backward(uint32_t layer, LayerGraph graph, const BlockWeights& w, const at::Tensor& grad_output,
                                  bool want_input_grad) {
  SLUICE_CHECK(!want_input_grad || needs_input_grad(layer), "nothing below this layer is trained");
  const GradientSlots& slots = *static_cast<const GradientSlots*>(graph.state.get());
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].defined()) slots[i]->view = view_gradient(blocks_.at(layer + 1), i, w);
  }
  if (graph.output.requires_grad()) torch::autograd::backward({graph.output}, {grad_output});
  return want_input_grad ? graph.input.grad() : at::Tensor();
}

Model::LossResult LayeredModel::loss(const BlockWeights& norm, const BlockWeights& matrix, const at::Tensor& x, const MicroBatch& batch,
                                     double scale, bool with_grads) {
  const BlockPlace &owner = tied_ ? blocks_.front() : blocks_.back(), &head = blocks_.back();
  const size_t index = tied_ ? 0 : head.tensors.size() - 1;
  const auto bias = static_cast<size_t>(norm_bias_);
  const LossHead parts{view_value(head, 0, norm),
                       norm_bias_ < 0 ? at::Tensor() : view_value(head, bias, norm),
                       view_value(owner, index, matrix),
                       view_gradient(head, 0, norm),
                       norm_bias_ < 0 ? at::Tensor() : view_gradient(head, bias, norm),
                       view_gradient(owner, index, matrix),
                       config_.norm_eps,
                       options_.loss_chunk};
  LossHeadResult result = loss_head(parts, x, batch.targets, scale, with_grads);
  return {std::move(result.loss_sum), std::move(result.grad_input)};
}

}  // namespace sluice::engine
