// The Llama family: x += Attention(norm(x)); x += SwiGLU(norm(x)). Qwen2 has biases on q, k and v; Qwen3 norms the heads of q and k.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>

#include <string>

#include "base/error.h"
#include "engine/attention.h"
#include "engine/embedding.h"
#include "engine/fused_attention.h"
#include "engine/layered_model.h"
#include "engine/linear.h"
#include "engine/rms_norm.h"
#include "engine/rotary.h"
#include "engine/swiglu.h"

namespace sluice::engine {
namespace {

using offload::BlockDesc;
using offload::BlockKind;
using offload::BlockPlace;

// Where the tensors of a layer are in its block; -1: the model has none.
struct LayerTensors {
  int input_norm, q, k, v, o, q_bias, k_bias, v_bias, o_bias, q_norm, k_norm, post_norm, gate, up, down, gate_bias, up_bias,
      down_bias;
};

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
                       at("q_norm.weight"),
                       at("k_norm.weight"),
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

class Llama : public LayeredModel {
 public:
  Llama(const HfConfig& config, const offload::Layout& layout, const ComputeOptions& options)
      : LayeredModel(config, layout, options), table_(rotary_frequencies(config)) {
    for (size_t i = 1; i + 1 < blocks_.size(); ++i) layers_.push_back(find_layer(blocks_[i]));
  }

  at::Tensor embed(const BlockWeights& w, const MicroBatch& batch) override {
    const at::NoGradGuard no_grad;
    return gather_rows(view_value(blocks_.front(), 0, w), batch.tokens);
  }

  void embed_backward(const BlockWeights& w, const at::Tensor& grad_output,
                      const MicroBatch& batch) override {
    const at::NoGradGuard no_grad;
    const at::Tensor grad = view_gradient(blocks_.front(), 0, w);
    if (grad.defined()) add_row_grads(grad_output, batch.tokens, options_.pad_token, grad);
  }

 private:
  at::Tensor run_layer(uint32_t layer, const LayerWeights& weights, const at::Tensor& x, const MicroBatch& batch) override {
    const LayerTensors& t = layers_[layer];
    const auto project = [&](const at::Tensor& input, int matrix, int bias) {
      if (bias < 0) return linear(input, weights[matrix], nullptr);
      const Parameter b = weights[bias];
      return linear(input, weights[matrix], &b);
    };
    // A projection whose heads are normed, where there is a norm, and rotated.
    const auto heads_of = [&](const at::Tensor& input, int matrix, int bias, int norm) {
      at::Tensor y = project(input, matrix, bias);
      if (norm >= 0) y = rms_norm(y.view({-1, config_.head_dim}), weights[norm], config_.norm_eps).view(y.sizes());
      return rotary(y, config_.head_dim, batch.positions, table_);
    };
    table_.extend(x.size(1), x.options());
    at::Tensor hidden = rms_norm(x, weights[t.input_norm], config_.norm_eps);
    const at::Tensor q = heads_of(hidden, t.q, t.q_bias, t.q_norm);
    const at::Tensor k = heads_of(hidden, t.k, t.k_bias, t.k_norm);
    const at::Tensor v = project(hidden, t.v, t.v_bias);
    const AttentionShape heads{config_.heads, config_.kv_heads, config_.head_dim};
    hidden = x.is_cuda() ? fused_attention(q, k, v, heads, batch.pieces, batch.starts) : attention(q, k, v, heads, batch.pieces);
    const at::Tensor middle = at::add(x, project(hidden, t.o, t.o_bias));
    hidden = rms_norm(middle, weights[t.post_norm], config_.norm_eps);
    hidden = swiglu(project(hidden, t.gate, t.gate_bias), project(hidden, t.up, t.up_bias));
    return at::add(middle, project(hidden, t.down, t.down_bias));
  }

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
  describe_projection(block, attention + "o_proj", c.hidden, c.heads * c.head_dim, c.attention_out_bias);
  if (c.qk_norm)
    for (const char* norm : {"q_norm.weight", "k_norm.weight"}) block.tensors.push_back({attention + norm, {c.head_dim}});
  block.tensors.push_back({prefix + "post_attention_layernorm.weight", {c.hidden}});
  if (c.branch_norms)
    for (const char* norm : {"pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight"})
      block.tensors.push_back({prefix + norm, {c.hidden}});
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
