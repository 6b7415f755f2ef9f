// What models of an embedding, equal layers and a head have in common: weights as views, graphs of a layer, the head.
#pragma once
#include <string>
#include <vector>

#include "engine/model.h"
#include "engine/parameter.h"

namespace sluice::engine {

// A view of a tensor's value, or of its gradient (undefined for a frozen tensor, and where no gradient is wanted), in its block's
// flat buffers.
at::Tensor view_value(const offload::BlockPlace& block, size_t index, const BlockWeights& w);
at::Tensor view_gradient(const offload::BlockPlace& block, size_t index, const BlockWeights& w);

// Index of the tensor of a block whose name ends with "." + suffix; -1: there is none.
int find_tensor(const offload::BlockPlace& block, const std::string& suffix);

// The gradient slots of a layer's graph, by index of the tensor in its block; null: frozen.
using GradientSlots = std::vector<GradientSlotPtr>;

// The weights of one layer as its operations take them.
class LayerWeights {
 public:
  // slots null: no graph. The arguments must outlive the object.
  LayerWeights(const offload::BlockPlace& block, const BlockWeights& weights, const GradientSlots* slots)
      : block_(block), weights_(weights), slots_(slots) {}
  Parameter operator[](int tensor) const;

 private:
  const offload::BlockPlace& block_;
  const BlockWeights& weights_;
  const GradientSlots* const slots_;
};

// A family gives its embedding and its layer; block 0 begins with the token embedding, the head with its norm's weight, then the
// norm's bias where there is one, then the matrix where it is not tied.
class LayeredModel : public Model {
 public:
  LayeredModel(const HfConfig& config, const offload::Layout& layout, const ComputeOptions& options);

  at::Tensor forward(uint32_t layer, const BlockWeights& w, const at::Tensor& x, const MicroBatch& batch) final;
  LayerGraph forward_graph(uint32_t layer, const BlockWeights& w, const at::Tensor& x, const MicroBatch& batch) final;
  at::Tensor backward(uint32_t layer, LayerGraph graph, const BlockWeights& w, const at::Tensor& grad_output, bool want_input_grad) final;
  LossResult loss(const BlockWeights& norm, const BlockWeights& matrix, const at::Tensor& x, const MicroBatch& batch, double scale,
                  bool with_grads) final;

 protected:
  // One layer on x [B, T, H]; with autograd when grad mode is on.
  virtual at::Tensor run_layer(uint32_t layer, const LayerWeights& w, const at::Tensor& x, const MicroBatch& batch) = 0;

  const HfConfig config_;
  const ComputeOptions options_;
  const std::vector<offload::BlockPlace> blocks_;

 private:
  // Without anything trained (a test of frozen layers) every layer passes its gradient on.
  bool needs_input_grad(uint32_t layer) const { return !lowest_trainable_ || *lowest_trainable_ <= layer; }

  const bool tied_;
  const std::optional<uint32_t> lowest_trainable_;
  const int norm_bias_;  // in the head; -1: none
};

}  // namespace sluice::engine
