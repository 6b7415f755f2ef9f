#include "engine/temporaries.h"

#include <algorithm>

namespace sluice::engine {
namespace {

constexpr uint64_t kFloat = sizeof(float);
constexpr uint64_t kQueries = 64;       // of an attention tile
constexpr uint64_t kFewHeads = 32;      // below this many (row, head) pairs attention splits each in two
constexpr uint64_t kProduct = 4 << 20;  // elements of a weight gradient before it is added
constexpr uint64_t kNormRows = 32;      // rows whose weight gradients a norm sums first

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
  LayerSizes(const HfConfig& c, const StepOptions& o, uint64_t element, uint32_t threads)
      : config_(c), element_(element), tokens_(uint64_t{o.micro_batch} * o.sequence), threads_(threads) {
    const uint64_t rows = o.micro_batch, dim = static_cast<uint64_t>(c.head_dim),
                   heads = static_cast<uint64_t>(c.heads);
    const uint64_t length = o.sequence;
    const auto tensor = [&](int64_t width) { return tokens_ * static_cast<uint64_t>(width) * element; };
    x = tensor(c.hidden);
    q = tensor(c.heads * c.head_dim);
    k = tensor(c.kv_heads * c.head_dim);
    wide = tensor(c.intermediate);
    rstd = tokens_ * kFloat;
    log_sums = rows * heads * length * kFloat;
    norm_partial = (tokens_ + kNormRows - 1) / kNormRows * static_cast<uint64_t>(c.hidden) * kFloat;
    const uint64_t parts = rows * heads < kFewHeads ? 2 : 1, pairs = rows * heads * parts;
    const uint64_t workers = std::min<uint64_t>(pairs, threads);
    scratch = workers * (2 * length * dim + kQueries * (2 * dim + length + 1)) * kFloat;
    scratch_backward = workers * (2 * length * dim + kQueries * (3 * dim + 2 * length)) * kFloat;
    attention_partial = pairs * 2 * length * dim * kFloat;
  }
  // One weight gradient [out, in] from so many tokens (bf16; fp32 adds in place): the rounded product, and
  // what the library's matmul takes meanwhile, which is some 700 bytes a token and thread.
  uint64_t product(int64_t out, int64_t in, uint64_t tokens) const {
    if (element_ == kFloat) return 0;
    const auto rows = static_cast<uint64_t>(out), cols = static_cast<uint64_t>(in);
    const uint64_t library = threads_ * ((64 << 10) + 700 * std::min<uint64_t>(tokens, 512));
    return std::min(rows, std::max<uint64_t>(64, kProduct / cols / 64 * 64)) * cols * element_ + library;
  }
  uint64_t product(int64_t out, int64_t in) const { return product(out, in, tokens_); }
  const HfConfig& config() const { return config_; }

  uint64_t x, q, k, wide, rstd, log_sums, norm_partial, scratch, scratch_backward, attention_partial;

 private:
  const HfConfig& config_;
  const uint64_t element_, tokens_, threads_;
};

struct LayerNeed {
  uint64_t forward = 0, graph_peak = 0, graph = 0, backward = 0;
};

// Llama::run_layer. With a graph, what the backward needs stays.
void forward(const LayerSizes& s, bool graph, Tape& tape) {
  const auto drop = [&](uint64_t bytes) {
    if (!graph) tape.give(bytes);
  };
  tape.take(s.rstd);
  tape.take(s.x);  // normed
  drop(s.rstd);
  for (const uint64_t width : {s.q, s.k}) {
    tape.take(width);  // projected
    tape.take(width);  // rotated
    tape.give(width);
  }
  tape.take(s.k);  // v
  tape.take(s.log_sums);
  tape.take(s.q);  // attention's output
  tape.pass(s.scratch);
  drop(s.log_sums);
  drop(s.x);       // normed
  tape.take(s.x);  // o
  tape.take(s.x);  // middle
  tape.give(s.x);
  tape.take(s.rstd);
  tape.take(s.x);  // normed
  drop(s.rstd);
  drop(s.q);
  tape.take(3 * s.wide);  // gate, up, and their product
  if (!graph) tape.give(2 * s.wide), tape.give(s.x);
  tape.take(s.x);  // down
  tape.take(s.x);  // result
  tape.give(s.x);
  if (graph) return;
  tape.give(s.x + s.wide + s.x + s.q + 2 * s.k);
}

// Gradients back through the graph, whose tensors go one by one.
void backward(const LayerSizes& s, bool want_input, Tape& tape) {
  const HfConfig& c = s.config();
  tape.take(s.wide);  // of the product
  tape.pass(s.product(c.hidden, c.intermediate));
  tape.give(s.wide);      // the product
  tape.take(2 * s.wide);  // of gate and up
  tape.give(s.wide);
  tape.give(2 * s.wide);  // gate, up
  tape.take(s.x);         // of the second norm's result, by up
  tape.pass(s.product(c.intermediate, c.hidden));
  tape.give(s.wide);
  tape.take(s.x);  // by gate, then added
  tape.pass(s.product(c.intermediate, c.hidden));
  tape.give(s.wide + s.x);
  tape.give(s.x);  // the second norm's result
  tape.take(s.x);  // of middle, through the norm
  tape.pass(s.norm_partial);
  tape.give(s.x);  // gradient of the norm's result
  tape.take(s.x);  // with the residual's
  tape.give(s.x);
  tape.give(s.x + s.rstd);  // middle
  tape.take(s.q);           // of attention's output
  tape.pass(s.product(c.hidden, c.heads * c.head_dim));
  tape.give(s.q);  // attention's output
  tape.take(s.q + 2 * s.k + s.attention_partial);
  tape.pass(s.scratch_backward);
  tape.give(s.attention_partial);
  tape.give(s.q);                         // gradient of the output
  tape.give(s.q + 2 * s.k + s.log_sums);  // q, k, v
  tape.take(s.x);                         // of the first norm's result, by v
  tape.give(s.k);
  tape.pass(s.k + s.x);  // by k
  tape.give(s.k);
  tape.pass(s.q + s.x);  // by q
  tape.give(s.q);
  tape.give(s.x);  // the first norm's result
  if (want_input) tape.pass(2 * s.x);
  tape.pass(s.norm_partial);
}

LayerNeed layer_need(const LayerSizes& sizes, bool want_input) {
  LayerNeed need;
  Tape plain, graph;
  forward(sizes, false, plain);
  need.forward = plain.peak();
  forward(sizes, true, graph);
  need.graph_peak = graph.peak();
  need.graph = graph.now();
  backward(sizes, want_input, graph);
  need.backward = graph.peak();
  return need;
}

uint64_t loss_need(const HfConfig& c, const LayerSizes& s, const StepShape& shape,
                   const TemporariesOptions& o) {
  const uint64_t tokens = uint64_t{shape.options().micro_batch} * shape.options().sequence;
  const uint64_t chunk = std::min<uint64_t>(tokens, static_cast<uint64_t>(o.loss_chunk)),
                 element = shape.weight_bytes();
  const uint64_t rows = chunk * static_cast<uint64_t>(c.hidden) * element;
  Tape tape;
  if (o.training) tape.take(s.x);
  tape.take(chunk * static_cast<uint64_t>(c.vocab) * element);
  tape.take(rows + chunk * kFloat);
  if (o.training) {
    tape.pass(s.product(c.vocab, c.hidden, chunk));
    tape.pass(rows + (chunk + kNormRows - 1) / kNormRows * static_cast<uint64_t>(c.hidden) * kFloat);
  }
  return tape.peak();
}

}  // namespace

uint64_t estimate_temporaries(const HfConfig& config, const StepShape& shape, const TemporariesOptions& o) {
  const LayerSizes sizes(config, shape.options(), shape.weight_bytes(), o.compute_threads);
  const auto head = static_cast<uint32_t>(shape.layout().blocks().size() - 1);
  const uint64_t micros = shape.options().micro_batches;
  const uint64_t tables =
      uint64_t{shape.options().sequence} * static_cast<uint64_t>(config.head_dim) * kFloat;  // cos and sin
  const LayerNeed inner = layer_need(sizes, true), lowest = layer_need(sizes, false);

  const uint32_t layers = head - 1,
                 first_kept =
                     o.training ? std::max(head - std::min(o.keep_graphs, layers), o.lowest_trainable) : head;
  const uint64_t kept_layers = head - std::max(first_kept, 1u);
  const uint64_t kept = kept_layers * micros * inner.graph;
  uint64_t worst = std::max({sizes.x, inner.forward, kept + loss_need(config, sizes, shape, o)});
  if (kept_layers > 0) worst = std::max(worst, kept - inner.graph + inner.graph_peak);
  if (!o.training) return tables + worst;
  for (uint32_t b = head - 1; b >= 1 && b >= o.lowest_trainable; --b) {
    const LayerNeed& layer = b > o.lowest_trainable ? inner : lowest;
    const uint64_t still_kept =
        b >= first_kept ? (b - std::max(first_kept, 1u) + 1) * micros * inner.graph : 0;
    const bool again = b < first_kept;
    worst = std::max(worst, still_kept + (again ? std::max(layer.graph_peak, layer.backward)
                                                : layer.backward - layer.graph));
  }
  return tables + worst;
}

}  // namespace sluice::engine
