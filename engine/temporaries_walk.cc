#include "engine/temporaries_walk.h"

namespace sluice::engine {

// Llama::run_layer. With a graph, what the backward needs stays.
void walk_llama_forward(const LayerSizes& s, bool graph, Tape& tape) {
  const auto drop = [&](uint64_t bytes) {
    if (!graph) tape.give(bytes);
  };
  tape.take(s.rstd);
  tape.take(s.x);  // normed
  drop(s.rstd);
  const auto heads = [&](uint64_t width, uint64_t head_rstd) {
    tape.take(width);  // projected
    if (s.config().qk_norm) {
      tape.take(head_rstd);
      tape.take(width);  // normed
      drop(head_rstd + width);
    }
    tape.take(width);  // rotated
    tape.give(width);
  };
  heads(s.q, s.rstd_q);
  heads(s.k, s.rstd_k);
  tape.take(s.k);  // v
  tape.take(s.log_sums);
  tape.take(s.q);  // attention's output
  tape.pass(s.scratch);
  drop(s.log_sums);
  drop(s.x);       // normed
  const bool branch_norms = s.config().branch_norms;
  const auto add_branch = [&] {
    tape.take(s.x);                                     // o or down
    if (branch_norms) tape.take(s.rstd + s.x);  // normed
    tape.take(s.x);                                     // middle or result
    tape.give(s.x);
    if (branch_norms) drop(s.rstd + s.x);
  };
  add_branch();
  tape.take(s.rstd);
  tape.take(s.x);  // normed
  drop(s.rstd);
  drop(s.q);
  tape.take(3 * s.wide);  // gate, up, and their product
  if (!graph) tape.give(2 * s.wide), tape.give(s.x);
  add_branch();
  if (graph) return;
  tape.give(s.x + s.wide + s.x + s.q + 2 * s.k);
}

// Gradients back through the graph, whose tensors go one by one.
void walk_llama_backward(const LayerSizes& s, bool want_input, Tape& tape) {
  const HfConfig& c = s.config();
  const uint64_t branch = c.branch_norms ? s.x : 0;  // gradient of what a branch's norm took
  const auto branch_norm = [&] {
    if (branch == 0) return;
    tape.take(branch);
    tape.pass(s.norm_partial);
    tape.give(s.x + s.rstd);
  };
  branch_norm();
  tape.take(s.wide);  // of the product
  tape.pass(s.product(c.hidden, c.intermediate));
  tape.give(branch);
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
  branch_norm();
  tape.take(s.q);  // of attention's output
  tape.pass(s.product(c.hidden, c.heads * c.head_dim));
  tape.give(branch);
  tape.give(s.q);  // attention's output
  tape.take(s.q + 2 * s.k + s.attention_partial);
  tape.pass(s.scratch_backward);
  tape.give(s.attention_partial);
  tape.give(s.q);                         // gradient of the output
  tape.give(s.q + 2 * s.k + s.log_sums);  // q, k, v
  tape.take(s.x);                         // of the first norm's result, by v
  tape.give(s.k);
  const auto heads = [&](uint64_t width, uint64_t head_rstd, uint64_t partial) {
    if (c.qk_norm) {
      tape.pass(2 * width + partial);  // through the rotation and the norm
      tape.give(width + head_rstd);    // what was normed
    }
    tape.pass(width + s.x);
    tape.give(width);
  };
  heads(s.k, s.rstd_k, s.norm_partial_k);
  heads(s.q, s.rstd_q, s.norm_partial_q);
  tape.give(s.x);  // the first norm's result
  if (want_input) tape.pass(2 * s.x);
  tape.pass(s.norm_partial);
}

// Gpt2::run_layer.
void walk_gpt2_forward(const LayerSizes& s, bool graph, Tape& tape) {
  const auto drop = [&](uint64_t bytes) {
    if (!graph) tape.give(bytes);
  };
  tape.take(2 * s.rstd);
  tape.take(s.x);  // normed
  drop(2 * s.rstd);
  tape.take(3 * s.x);  // q, k and v
  drop(s.x);           // normed
  tape.take(s.log_sums);
  tape.take(s.x);  // attention's output
  tape.pass(s.scratch);
  drop(s.log_sums);
  drop(3 * s.x);
  tape.take(s.x);  // projected
  tape.take(s.x);  // middle
  tape.give(s.x);
  tape.take(2 * s.rstd);
  tape.take(s.x);  // normed
  drop(2 * s.rstd);
  drop(s.x);               // attention's output
  tape.take(2 * s.wide);   // into the MLP, and its GELU
  drop(s.wide + s.x);
  tape.take(2 * s.x);  // out of the MLP, and the result
  tape.give(s.x);
}

void walk_gpt2_backward(const LayerSizes& s, bool want_input, bool dropout, Tape& tape) {
  const HfConfig& c = s.config();
  const uint64_t dropped = dropout ? s.x : 0;  // the gradient of what is dropped is a tensor of its own
  tape.take(dropped);
  tape.take(s.wide);  // of the GELU's result
  tape.pass(s.product(c.intermediate, c.hidden));
  tape.give(s.wide + dropped);
  tape.take(s.wide);       // of what went into the GELU
  tape.give(2 * s.wide);
  tape.take(s.x);  // of the second norm's result
  tape.pass(s.product(c.hidden, c.intermediate));
  tape.give(s.wide + s.x);
  tape.take(s.x);  // of middle, through the norm
  tape.pass(2 * s.norm_partial);
  tape.give(s.x);
  tape.pass(s.x);                   // with the residual's
  tape.give(s.x + 2 * s.rstd);      // middle
  tape.take(dropped);
  tape.take(s.x);  // of attention's output
  tape.pass(s.product(c.hidden, c.hidden));
  tape.give(s.x + dropped);
  tape.take(3 * s.x + s.attention_partial);
  tape.pass(s.scratch_backward);
  tape.give(s.attention_partial);
  tape.give(s.x + 3 * s.x + s.log_sums);
  tape.take(s.x);  // of the first norm's result
  tape.pass(s.product(c.hidden, 3 * c.hidden));
  tape.give(3 * s.x + s.x);
  if (want_input) tape.pass(2 * s.x);
  tape.pass(2 * s.norm_partial);
}

}  // namespace sluice::engine
