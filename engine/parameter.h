// One weight tensor as the layer operations see it.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/custom_class.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

namespace sluice::engine {

// Where the gradient of one weight goes: an fp32 view of the block's flat gradient, of the weight's shape,
// bound for the time of a backward; undefined: no gradient is wanted. The operations add to it themselves, in
// fp32, and give autograd none for the leaf.
struct GradientSlot : torch::CustomClassHolder {
  at::Tensor view;
};
using GradientSlotPtr = c10::intrusive_ptr<GradientSlot>;

// `value` is a view of the block's flat weights; a leaf that requires grad when it has a slot. No slot:
// frozen, or no graph.
struct Parameter {
  at::Tensor value;
  GradientSlotPtr slot;
};

// Keep a slot in a graph, and find its view again in backward (undefined without a slot).
inline void save_slot(torch::autograd::AutogradContext* ctx, const char* key, const GradientSlotPtr& slot) {
  if (slot.defined()) ctx->saved_data[key] = c10::IValue::make_capsule(slot);
}
inline at::Tensor saved_gradient(torch::autograd::AutogradContext* ctx, const char* key) {
  const auto found = ctx->saved_data.find(key);
  if (found == ctx->saved_data.end()) return {};
  return c10::static_intrusive_pointer_cast<GradientSlot>(found->second.toCapsule())->view;
}

}  // namespace sluice::engine
