// The math of a model, block by block. Weights and gradients are views into flat buffers that somebody else owns.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/dropout.h"
#include "engine/hf_config.h"
#include "offload/layout.h"

namespace sluice::engine {

// The flat weights of one block in the compute type, and (when training it) the flat fp32 gradient of its trainable segment.
// Both are slices of storages that live as long as the slot; a refill must bump the version counter of `flat`.
struct BlockWeights {
  at::Tensor flat;   // [BlockPlace::device_elements()], trainable segment then frozen segment at padded_trainable()
  at::Tensor grad;   // fp32 [trainable]; undefined: no gradient is wanted
};

// One micro-batch, on the device. Documents are packed: `pieces` are the starts of document pieces inside each row.
struct MicroBatch {
  at::Tensor tokens;     // int64 [B, T]
  at::Tensor targets;    // int64 [B, T]; -100: not trained
  at::Tensor positions;  // int64 [B, T], restart per piece
  std::vector<std::vector<int32_t>> pieces;  // per row: starts, first is 0
  uint64_t trained = 0;  // targets != -100
  at::Tensor starts;     // the pieces for a GPU's attention, see document_groups.h; int32; the CPU needs none
  std::optional<RandomKey> random;  // of dropout; none: nothing is dropped (evaluation)
};

// A forward with grad of one layer, kept until its backward.
struct LayerGraph {
  at::Tensor input;   // leaf
  at::Tensor output;
  std::shared_ptr<void> state;  // what the implementation keeps beside (leaves, a holder of the gradient view)
};

struct ComputeOptions {
  int64_t loss_chunk = 512;        // tokens of the head at a time (a numeric setting)
  std::optional<int64_t> pad_token;  // its embedding row gets no embedding gradient
};

// Stateless between calls but for caches of rotary tables and buffers. All calls come from one thread (the compute stream's);
// the results of forward with and without grad are equal bits.
class Model {
 public:
  virtual ~Model() = default;
  virtual at::Tensor embed(const BlockWeights& w, const MicroBatch& batch) = 0;               // -> [B, T, H]
  virtual at::Tensor forward(uint32_t layer, const BlockWeights& w, const at::Tensor& x, const MicroBatch& batch) = 0;  // no grad
  virtual LayerGraph forward_graph(uint32_t layer, const BlockWeights& w, const at::Tensor& x, const MicroBatch& batch) = 0;
  // Adds the weight gradients to w.grad; returns d(loss)/d(input), undefined unless wanted. w names the same weights as in
  // forward_graph, but w.grad is bound only here: a kept graph's gradient buffer is not known before its backward (forward_graph
  // ignores w.grad but for whether gradients will be wanted, which follows from the trainable tensors).
  virtual at::Tensor backward(uint32_t layer, LayerGraph graph, const BlockWeights& w, const at::Tensor& grad_output,
                              bool want_input_grad) = 0;
  // Final norm, LM head and loss. `scale` multiplies the gradient (1 / trained tokens of the global batch); the returned loss is
  // the plain sum of token losses. With grads: adds to norm.grad and matrix.grad and returns d(loss * scale)/dx.
  // matrix: the tied embedding or the lm_head; tied: the matrix's gradient goes to matrix.grad as well (its own buffer).
  struct LossResult {
    at::Tensor loss_sum;    // double, on the device
    at::Tensor grad_input;  // undefined without grads
  };
  virtual LossResult loss(const BlockWeights& norm, const BlockWeights& matrix, const at::Tensor& x, const MicroBatch& batch,
                          double scale, bool with_grads) = 0;
  virtual void embed_backward(const BlockWeights& w, const at::Tensor& grad_output, const MicroBatch& batch) = 0;
};

// Blocks and tensors of a model, in declared order, with the names of its files.
offload::ModelDesc describe_model(const HfConfig& config);
std::unique_ptr<Model> make_model(const HfConfig& config, const offload::Layout& layout, const ComputeOptions& options);

// By family.
offload::ModelDesc describe_llama(const HfConfig& config);
std::unique_ptr<Model> make_llama(const HfConfig& config, const offload::Layout& layout, const ComputeOptions& options);
offload::ModelDesc describe_gpt2(const HfConfig& config);
std::unique_ptr<Model> make_gpt2(const HfConfig& config, const offload::Layout& layout, const ComputeOptions& options);

}  // namespace sluice::engine
