// The Llama family: x += Attention(norm(x)); x += SwiGLU(norm(x)).
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>

#include "base/error.h"
#include "engine/attention.h"
#include "engine/embedding.h"
#include "engine/fused_attention.h"
#include "engine/linear.h"
#include "engine/loss_head.h"
#include "engine/model.h"
#include "engine/rms_norm.h"
#include "engine/rotary.h"
#include "engine/swiglu.h"

namespace sluice::engine {
namespace {

using offload::BlockDesc;
using offload::BlockKind;
using offload::BlockPlace;

at::Tensor view_value(const BlockPlace& block, size_t index, const BlockWeights& w) {
  const offload::TensorPlace& place = block.tensors[index];
  const uint64_t start = place.offset + (place.trainable ? 0 : block.padded_trainable());
  return w.flat.narrow(0, static_cast<int64_t>(start), static_cast<int64_t>(place.count)).view(place.shape);
}

// Undefined for a frozen tensor, and where no gradient is wanted.
at::Tensor view_gradient(const BlockPlace& block, size_t index, const BlockWeights& w) {
  const offload::TensorPlace& place = block.tensors[index];
  if (!place.trainable || !w.grad.defined()) return {};
  return w.grad.narrow(0, static_cast<int64_t>(place.offset), static_cast<int64_t>(place.count))
      .view(place.shape);
}

// The gradient slots of a layer's graph, by index of the tensor in its block; null: frozen.
using Slots = std::vector<GradientSlotPtr>;

// Where the tensors of a layer are in its block; -1: the model has none.
struct LayerTensors {
  int input_norm, q, k, v, o, q_bias, k_bias, v_bias, o_bias, post_norm, gate, up, down, gate_bias, up_bias,
      down_bias;
};

int find_tensor(const BlockPlace& block, const std::string& suffix) {
  for (size_t i = 0; i < block.tensors.size(); ++i) {
    if (block.tensors[i].name.ends_with("." + suffix)) return static_cast<int>(i);
  }
  return -1;
}

LayerTensors find_layer(const BlockPlace& block) {
  const auto at = [&](const char* suffix) { return find_tensor(block, suffix); };
  const LayerTensors t{at("input_layernorm.weight"),
                       at("q_proj.weight"),
                       at("k_proj.weight"),
                       at("v_proj.weight"),
                       at("o_proj.weight"),
                       at("q_proj.bias"),
                       at("k_proj.bias"),
                       at("v_proj.bias"),
                       at("o_proj.bias"),
                       at("post_attention_layernorm.weight"),
                       at("gate_proj.weight"),
                       at("up_proj.weight"),
                       at("down_proj.weight"),
                       at("gate_proj.bias"),
                       at("up_proj.bias"),
                       at("down_proj.bias")};
  for (const int needed : {t.input_norm, t.q, t.k, t.v, t.o, t.post_norm, t.gate, t.up, t.down}) {
    SLUICE_CHECK(needed >= 0, "a layer of the layout lacks a tensor of the Llama family");
  }
  return t;
}

class Llama : public Model {
 public:
  Llama(const HfConfig& config, const offload::Layout& layout, const ComputeOptions& options)
      : config_(config),
        options_(options),
        blocks_(layout.blocks()),
        tied_(layout.tied()),
        lowest_trainable_(layout.lowest_trainable_block()),
        table_(rotary_frequencies(config)) {
    SLUICE_CHECK(blocks_.size() == static_cast<size_t>(config.layers) + 2, "the layout is of another model");
    for (size_t i = 1; i + 1 < blocks_.size(); ++i) layers_.push_back(find_layer(blocks_[i]));
  }

  at::Tensor embed(const BlockWeights& w, const MicroBatch& batch) override {
    const at::NoGradGuard no_grad;
    return gather_rows(view_value(blocks_.front(), 0, w), batch.tokens);
  }

  at::Tensor forward(uint32_t layer, const BlockWeights& w, const at::Tensor& x,
                     const MicroBatch& batch) override {
    const at::NoGradGuard no_grad;
    return run_layer(layer, w, x, batch, nullptr);
  }

  LayerGraph forward_graph(uint32_t layer, const BlockWeights& w, const at::Tensor& x,
                           const MicroBatch& batch) override {
    const at::AutoGradMode with_grad(true);
    LayerGraph graph;
    graph.input = x.detach();
    graph.input.set_requires_grad(needs_input_grad(layer));
    const auto slots = std::make_shared<Slots>();
    for (const auto& place : blocks_.at(layer + 1).tensors) {
      slots->push_back(place.trainable ? c10::make_intrusive<GradientSlot>() : GradientSlotPtr());
    }
    graph.output = run_layer(layer, w, graph.input, batch, slots.get());
    graph.state = slots;
    return graph;
  }

  at::Tensor backward(uint32_t layer, LayerGraph graph, const BlockWeights& w, const at::Tensor& grad_output,
                      bool want_input_grad) override {
    SLUICE_CHECK(!want_input_grad || needs_input_grad(layer), "nothing below this layer is trained");
    const Slots& slots = *static_cast<const Slots*>(graph.state.get());
    for (size_t i = 0; i < slots.size(); ++i) {
      if (slots[i].defined()) slots[i]->view = view_gradient(blocks_.at(layer + 1), i, w);
    }
    if (graph.output.requires_grad()) torch::autograd::backward({graph.output}, {grad_output});
    return want_input_grad ? graph.input.grad() : at::Tensor();
  }

  LossResult loss(const BlockWeights& norm, const BlockWeights& matrix, const at::Tensor& x,
                  const MicroBatch& batch, double scale, bool with_grads) override {
    const BlockPlace& owner = tied_ ? blocks_.front() : blocks_.back();
    const size_t index = tied_ ? 0 : 1;
    const LossHead head{view_value(blocks_.back(), 0, norm),
                        view_value(owner, index, matrix),
                        view_gradient(blocks_.back(), 0, norm),
                        view_gradient(owner, index, matrix),
                        config_.norm_eps,
                        options_.loss_chunk};
    LossHeadResult result = loss_head(head, x, batch.targets, scale, with_grads);
    return {std::move(result.loss_sum), std::move(result.grad_input)};
  }

  void embed_backward(const BlockWeights& w, const at::Tensor& grad_output,
                      const MicroBatch& batch) override {
    const at::NoGradGuard no_grad;
    const at::Tensor grad = view_gradient(blocks_.front(), 0, w);
    if (grad.defined()) add_row_grads(grad_output, batch.tokens, options_.pad_token, grad);
  }

 private:
  // Without anything trained (a test of frozen layers) every layer passes its gradient on.
  bool needs_input_grad(uint32_t layer) const { return !lowest_trainable_ || *lowest_trainable_ <= layer; }

  at::Tensor run_layer(uint32_t layer, const BlockWeights& w, const at::Tensor& x, const MicroBatch& batch,
                       const Slots* slots) {
    const BlockPlace& block = blocks_.at(layer + 1);
    const LayerTensors& t = layers_[layer];
    const auto weight = [&](int tensor) {
      const auto index = static_cast<size_t>(tensor);
      // detach() shares the version counter of `flat`, so a refill under a live graph is noticed.
      Parameter p{view_value(block, index, w).detach(), slots ? (*slots)[index] : GradientSlotPtr()};
      p.value.set_requires_grad(p.slot.defined());
      return p;
    };
    const auto project = [&](const at::Tensor& input, int matrix, int bias) {
      if (bias < 0) return linear(input, weight(matrix), nullptr);
      const Parameter b = weight(bias);
      return linear(input, weight(matrix), &b);
    };
    table_.extend(x.size(1), x.options());
    at::Tensor hidden = rms_norm(x, weight(t.input_norm), config_.norm_eps);
    const at::Tensor q = rotary(project(hidden, t.q, t.q_bias), config_.head_dim, batch.positions, table_);
    const at::Tensor k = rotary(project(hidden, t.k, t.k_bias), config_.head_dim, batch.positions, table_);
    const at::Tensor v = project(hidden, t.v, t.v_bias);
    const AttentionShape heads{config_.heads, config_.kv_heads, config_.head_dim};
    hidden = x.is_cuda() ? fused_attention(q, k, v, heads, batch.pieces, batch.starts) : attention(q, k, v, heads, batch.pieces);
    const at::Tensor middle = at::add(x, project(hidden, t.o, t.o_bias));
    hidden = rms_norm(middle, weight(t.post_norm), config_.norm_eps);
    hidden = swiglu(project(hidden, t.gate, t.gate_bias), project(hidden, t.up, t.up_bias));
    return at::add(middle, project(hidden, t.down, t.down_bias));
  }

  const HfConfig config_;
  const ComputeOptions options_;
  const std::vector<BlockPlace> blocks_;
  const bool tied_;
  const std::optional<uint32_t> lowest_trainable_;
  std::vector<LayerTensors> layers_;
  RotaryTable table_;
};

void describe_projection(BlockDesc& block, const std::string& name, int64_t out, int64_t in, bool bias) {
  block.tensors.push_back({name + ".weight", {out, in}});
  if (bias) block.tensors.push_back({name + ".bias", {out}});
}

BlockDesc describe_layer(const HfConfig& c, int64_t index) {
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
  BlockDesc block{BlockKind::layer, {}};
  block.tensors.push_back({prefix + "input_layernorm.weight", {c.hidden}});
  describe_projection(block, attention + "q_proj", c.heads * c.head_dim, c.hidden, c.attention_bias);
  describe_projection(block, attention + "k_proj", c.kv_heads * c.head_dim, c.hidden, c.attention_bias);
  describe_projection(block, attention + "v_proj", c.kv_heads * c.head_dim, c.hidden, c.attention_bias);
  describe_projection(block, attention + "o_proj", c.hidden, c.heads * c.head_dim, c.attention_bias);
  block.tensors.push_back({prefix + "post_attention_layernorm.weight", {c.hidden}});
  describe_projection(block, mlp + "gate_proj", c.intermediate, c.hidden, c.mlp_bias);
  describe_projection(block, mlp + "up_proj", c.intermediate, c.hidden, c.mlp_bias);
  describe_projection(block, mlp + "down_proj", c.hidden, c.intermediate, c.mlp_bias);
  return block;
}

}  // namespace

offload::ModelDesc describe_llama(const HfConfig& config) {
  offload::ModelDesc model;
  model.tied = config.tied;
  model.blocks.push_back(
      {BlockKind::embedding, {{"model.embed_tokens.weight", {config.vocab, config.hidden}}}});
  for (int64_t i = 0; i < config.layers; ++i) model.blocks.push_back(describe_layer(config, i));
  BlockDesc head{BlockKind::head, {{"model.norm.weight", {config.hidden}}}};
  if (!config.tied) head.tensors.push_back({"lm_head.weight", {config.vocab, config.hidden}});
  model.blocks.push_back(std::move(head));
  return model;
}

std::unique_ptr<Model> make_llama(const HfConfig& config, const offload::Layout& layout,
                                  const ComputeOptions& options) {
  return std::make_unique<Llama>(config, layout, options);
}

}  // namespace sluice::engine
