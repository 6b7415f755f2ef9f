// What temporaries.cc is made of: a walk through the operations of each family's layer, with sizes instead of tensors.
#pragma once
#include <algorithm>
#include <cstdint>

#include "engine/attention_scratch.h"
#include "engine/hf_config.h"
#include "engine/step_shape.h"

namespace sluice::engine {

inline constexpr uint64_t kFloat = sizeof(float);
inline constexpr uint64_t kProduct = 4 << 20;  // elements of a weight gradient before it is added
inline constexpr uint64_t kNormRows = 32;      // rows whose weight gradients a norm sums first

// Memory that comes and goes: the most that was there at once.
class Tape {
 public:
  void take(uint64_t bytes) {
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  void give(uint64_t bytes) { now_ -= bytes; }
  void pass(uint64_t bytes) { take(bytes), give(bytes); }
  uint64_t now() const { return now_; }
  uint64_t peak() const { return peak_; }

 private:
  uint64_t now_ = 0, peak_ = 0;
};

// The tensors of one layer's micro-batch, in bytes.
class LayerSizes {
 public:
  LayerSizes(const HfConfig& c, const StepOptions& o, offload::Schema schema, uint32_t threads)
      : config_(c), schema_(schema), element_(offload::weight_bytes(schema)), tokens_(uint64_t{o.micro_batch} * o.sequence), threads_(threads) {
    const uint64_t rows = o.micro_batch, dim = static_cast<uint64_t>(c.head_dim),
                   heads = static_cast<uint64_t>(c.heads);
    const uint64_t length = o.sequence;
    const auto tensor = [&](int64_t width) { return tokens_ * static_cast<uint64_t>(width) * element_; };
    x = tensor(c.hidden);
    q = tensor(c.heads * c.head_dim);
    k = tensor(c.kv_heads * c.head_dim);
    wide = tensor(c.intermediate);
    rstd = tokens_ * kFloat;
    rstd_q = c.qk_norm ? rstd * heads : 0;
    rstd_k = c.qk_norm ? rstd * static_cast<uint64_t>(c.kv_heads) : 0;
    log_sums = rows * heads * length * kFloat;
    norm_partial = (tokens_ + kNormRows - 1) / kNormRows * static_cast<uint64_t>(c.hidden) * kFloat;
    const auto head_partial = [&](int64_t count) {
      return (tokens_ * static_cast<uint64_t>(count) + kNormRows - 1) / kNormRows * dim * kFloat;
    };
    norm_partial_q = head_partial(c.heads);
    norm_partial_k = head_partial(c.kv_heads);
    const uint64_t parts = rows * heads < static_cast<uint64_t>(kFewHeads) ? 2 : 1, pairs = rows * heads * parts;
    const uint64_t workers = std::min<uint64_t>(pairs, threads);
    const bool products = by_bf16_products(offload::number_type(schema) == offload::NumberType::bf16, c.head_dim);
    const AttentionScratch words = attention_scratch(o.sequence, c.head_dim, o.sequence, products);
    scratch = workers * static_cast<uint64_t>(words.forward) * kFloat;
    scratch_backward = workers * static_cast<uint64_t>(words.backward) * kFloat;
    attention_partial = pairs * 2 * length * dim * kFloat;
  }
  // One weight gradient [out, in] from so many tokens (fp32 adds in place): the rounded product, and in bf16
  // what the library's matmul takes meanwhile, which is some 700 bytes a token and thread.
  uint64_t product(int64_t out, int64_t in, uint64_t tokens) const {
    if (element_ == kFloat) return 0;
    const auto rows = static_cast<uint64_t>(out), cols = static_cast<uint64_t>(in);
    const uint64_t library = offload::number_type(schema_) == offload::NumberType::bf16 ? threads_ * ((64 << 10) + 700 * std::min<uint64_t>(tokens, 512)) : 0;
    return std::min(rows, std::max<uint64_t>(64, kProduct / cols / 64 * 64)) * cols * element_ + library;
  }
  uint64_t product(int64_t out, int64_t in) const { return product(out, in, tokens_); }
  const HfConfig& config() const { return config_; }

  uint64_t x, q, k, wide, rstd, rstd_q, rstd_k, log_sums, norm_partial, norm_partial_q, norm_partial_k, scratch, scratch_backward, attention_partial;

 private:
  const HfConfig& config_;
  const offload::Schema schema_;
  const uint64_t element_, tokens_, threads_;
};

// One layer on a micro-batch. The backward goes through the graph that the forward left on the tape.
void walk_llama_forward(const LayerSizes& s, bool graph, Tape& tape);
void walk_llama_backward(const LayerSizes& s, bool want_input, Tape& tape);
void walk_gpt2_forward(const LayerSizes& s, bool graph, Tape& tape);
void walk_gpt2_backward(const LayerSizes& s, bool want_input, bool dropout, Tape& tape);

}  // namespace sluice::engine
