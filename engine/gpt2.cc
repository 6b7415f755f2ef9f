// GPT-2: x = wte[token] + wpe[position]; x += Attention(LayerNorm(x)); x += MLP(LayerNorm(x)); biases and dropout everywhere.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>

#include "base/error.h"
#include "engine/attention.h"
#include "engine/embedding.h"
#include "engine/fused_attention.h"
#include "engine/gelu.h"
#include "engine/layer_norm.h"
#include "engine/layered_model.h"
#include "engine/linear.h"

namespace sluice::engine {
namespace {

using offload::BlockDesc;
using offload::BlockKind;

// Tensors of a layer, in declared order.
enum Tensor : int {
  norm_1, norm_1_bias, qkv, qkv_bias, attention_out, attention_out_bias,
  norm_2, norm_2_bias, mlp_in, mlp_in_bias, mlp_out, mlp_out_bias, tensor_count
};
constexpr size_t kTokens = 0, kPositions = 1;  // of the embedding block

class Gpt2 : public LayeredModel {
 public:
  Gpt2(const HfConfig& config, const offload::Layout& layout, const ComputeOptions& options) : LayeredModel(config, layout, options) {
    for (size_t i = 1; i + 1 < blocks_.size(); ++i)
      SLUICE_CHECK(blocks_[i].tensors.size() == static_cast<size_t>(tensor_count), "a layer of the layout is none of GPT-2");
  }

  at::Tensor embed(const BlockWeights& w, const MicroBatch& batch) override {
    const at::NoGradGuard no_grad;
    const auto rows = [&](size_t matrix, const at::Tensor& ids) { return gather_rows(view_value(blocks_.front(), matrix, w), ids); };
    return dropped(rows(kTokens, batch.tokens).add_(rows(kPositions, batch.positions)), dropout(batch, 0, DropoutPlace::embedding));
  }

  // transformers gives no padding row to this family, so the pad token's row is trained as any.
  void embed_backward(const BlockWeights& w, const at::Tensor& grad_output, const MicroBatch& batch) override {
    const at::NoGradGuard no_grad;
    const at::Tensor grad = dropped(grad_output, dropout(batch, 0, DropoutPlace::embedding));
    const auto add = [&](size_t matrix, const at::Tensor& ids) {
      const at::Tensor sum = view_gradient(blocks_.front(), matrix, w);
      if (sum.defined()) add_row_grads(grad, ids, std::nullopt, sum);
    };
    add(kTokens, batch.tokens);
    add(kPositions, batch.positions);
  }

 private:
  gpu::cpu::Dropout dropout(const MicroBatch& batch, uint32_t block, DropoutPlace place) const {
    const double p = place == DropoutPlace::embedding   ? config_.embedding_dropout
                     : place == DropoutPlace::attention ? config_.attention_dropout
                                                        : config_.residual_dropout;
    return make_dropout(p, batch.random, block, place);
  }

  at::Tensor run_layer(uint32_t layer, const LayerWeights& w, const at::Tensor& x, const MicroBatch& batch) override {
    const AttentionShape heads{config_.heads, config_.heads, config_.head_dim};
    const auto drop = [&](DropoutPlace place) { return dropout(batch, layer + 1, place); };
    at::Tensor hidden = layer_norm(x, w[norm_1], w[norm_1_bias], config_.norm_eps);
    hidden = conv1d(hidden, w[qkv], w[qkv_bias]);
    hidden = x.is_cuda() ? fused_packed_attention(hidden, heads, batch.pieces, batch.starts, drop(DropoutPlace::attention))
                         : packed_attention(hidden, heads, batch.pieces, drop(DropoutPlace::attention));
    const at::Tensor middle = dropout_add(x, conv1d(hidden, w[attention_out], w[attention_out_bias]), drop(DropoutPlace::attention_output));
    hidden = layer_norm(middle, w[norm_2], w[norm_2_bias], config_.norm_eps);
    hidden = tanh_gelu(conv1d(hidden, w[mlp_in], w[mlp_in_bias]));
    return dropout_add(middle, conv1d(hidden, w[mlp_out], w[mlp_out_bias]), drop(DropoutPlace::mlp_output));
  }
};

BlockDesc describe_layer(const HfConfig& c, int64_t index) {
  const std::string prefix = c.prefix + "h." + std::to_string(index) + ".";
  BlockDesc block{BlockKind::layer, {}};
  const auto norm = [&](const std::string& name) {
    block.tensors.push_back({prefix + name + ".weight", {c.hidden}});
    block.tensors.push_back({prefix + name + ".bias", {c.hidden}});
  };
  const auto matrix = [&](const std::string& name, int64_t in, int64_t out) {
    block.tensors.push_back({prefix + name + ".weight", {in, out}});
    block.tensors.push_back({prefix + name + ".bias", {out}});
  };
  norm("ln_1");
  matrix("attn.c_attn", c.hidden, 3 * c.hidden);
  matrix("attn.c_proj", c.hidden, c.hidden);
  norm("ln_2");
  matrix("mlp.c_fc", c.hidden, c.intermediate);
  matrix("mlp.c_proj", c.intermediate, c.hidden);
  return block;
}

}  // namespace

offload::ModelDesc describe_gpt2(const HfConfig& c) {
  offload::ModelDesc model;
  model.tied = true;
  model.blocks.push_back(
      {BlockKind::embedding, {{c.prefix + "wte.weight", {c.vocab, c.hidden}}, {c.prefix + "wpe.weight", {c.max_positions, c.hidden}}}});
  for (int64_t i = 0; i < c.layers; ++i) model.blocks.push_back(describe_layer(c, i));
  model.blocks.push_back({BlockKind::head, {{c.prefix + "ln_f.weight", {c.hidden}}, {c.prefix + "ln_f.bias", {c.hidden}}}});
  return model;
}

std::unique_ptr<Model> make_gpt2(const HfConfig& config, const offload::Layout& layout, const ComputeOptions& options) {
  return std::make_unique<Gpt2>(config, layout, options);
}

}  // namespace sluice::engine
