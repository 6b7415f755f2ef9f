#include "engine/temporaries.h"

#include <algorithm>

#include "engine/temporaries_walk.h"

namespace sluice::engine {
namespace {

struct LayerNeed {
  uint64_t forward = 0, graph_peak = 0, graph = 0, backward = 0;
};

LayerNeed layer_need(const LayerSizes& sizes, bool want_input) {
  const HfConfig& c = sizes.config();
  const bool gpt2 = c.family == Family::gpt2;
  const auto forward = gpt2 ? walk_gpt2_forward : walk_llama_forward;
  LayerNeed need;
  Tape plain, graph;
  forward(sizes, false, plain);
  need.forward = plain.peak();
  forward(sizes, true, graph);
  need.graph_peak = graph.peak();
  need.graph = graph.now();
  if (gpt2) {
    walk_gpt2_backward(sizes, want_input, c.residual_dropout > 0, graph);
  } else {
    walk_llama_backward(sizes, want_input, graph);
  }
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
  const uint64_t norm_parameters = c.family == Family::gpt2 ? 2 : 1;
  tape.take(rows + norm_parameters * chunk * kFloat);
  if (o.training) {
    tape.pass(s.product(c.vocab, c.hidden, chunk));
    tape.pass(rows + norm_parameters * ((chunk + kNormRows - 1) / kNormRows) * static_cast<uint64_t>(c.hidden) * kFloat);
  }
  return tape.peak();
}

}  // namespace

uint64_t estimate_temporaries(const HfConfig& config, const StepShape& shape, const TemporariesOptions& o) {
  const LayerSizes sizes(config, shape.options(), shape.layout().schema(), o.compute_threads);
  const auto head = static_cast<uint32_t>(shape.layout().blocks().size() - 1);
  const uint64_t micros = shape.options().micro_batches;
  const uint64_t tables = config.learned_positions  // cos and sin
                              ? 0
                              : uint64_t{shape.options().sequence} * static_cast<uint64_t>(config.head_dim) * kFloat;
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
