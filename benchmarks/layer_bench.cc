// Time of one layer (forward, graph, backward) and of the loss at the shape of SmolLM2-135M, on the emulated
// device. Run by hand:
//   layer_bench [--batch 1] [--tokens 512] [--repeats 5] [--fp32] [--threads 1 --cpu]
// With one thread, --cpu counts processor time, which other processes disturb less than the clock.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>

#include "engine/attention.h"
#include "engine/model.h"
#include "gpu/emulated_device.h"

namespace sluice {
namespace {

using engine::BlockWeights;

engine::HfConfig shape_of_smollm2() {
  engine::HfConfig c;
  c.hidden = 576;
  c.intermediate = 1536;
  c.layers = 1;
  c.heads = 9;
  c.kv_heads = 3;
  c.head_dim = 64;
  c.vocab = 49152;
  c.norm_eps = 1e-5;
  c.rope_theta = 1e5;
  c.tied = true;
  return c;
}

struct Options {
  int64_t batch = 1, tokens = 512;
  int repeats = 5, threads = 0;
  bool fp32 = false, cpu = false;
};

double now(bool cpu) {
  if (cpu) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double best_seconds(const Options& o, const std::function<void()>& work) {
  double best = 1e9;
  for (int i = 0; i <= o.repeats; ++i) {  // the first warms up
    const double begin = now(o.cpu);
    work();
    if (i > 0) best = std::min(best, now(o.cpu) - begin);
  }
  return best;
}

void report(const char* what, double seconds, double flop) {
  fmt::print("{:28} {:8.2f} ms   {:6.0f} GFLOP/s\n", what, seconds * 1e3, flop / seconds * 1e-9);
}

BlockWeights make_weights(const offload::BlockPlace& block, at::ScalarType type) {
  const at::TensorOptions f32 = at::TensorOptions().dtype(at::kFloat);
  return {(at::randn({static_cast<int64_t>(block.device_elements())}, f32) * 0.02).to(type),
          at::zeros({static_cast<int64_t>(block.trainable)}, f32)};
}

void measure(const Options& o) {
  const engine::HfConfig c = shape_of_smollm2();
  const at::ScalarType type = o.fp32 ? at::kFloat : at::kBFloat16;
  const offload::Layout layout(engine::describe_llama(c),
                               o.fp32 ? offload::Schema::fp32 : offload::Schema::bf16, 2 << 20);
  const auto model = engine::make_llama(c, layout, {});
  std::vector<BlockWeights> w;
  for (const auto& block : layout.blocks()) w.push_back(make_weights(block, type));
  const at::TensorOptions longs = at::TensorOptions().dtype(at::kLong);
  engine::MicroBatch batch{at::randint(c.vocab, {o.batch, o.tokens}, longs),
                           at::randint(c.vocab, {o.batch, o.tokens}, longs),
                           at::arange(o.tokens, longs).expand({o.batch, o.tokens}).contiguous(),
                           {},
                           static_cast<uint64_t>(o.batch * o.tokens)};
  batch.pieces.assign(static_cast<size_t>(o.batch), {0});
  const at::Tensor x = model->embed(w[0], batch) * 50, grad = x * 1e-3;

  const auto tokens = static_cast<double>(o.batch * o.tokens);
  const double matmul = 2 * tokens * static_cast<double>(layout.blocks()[1].trainable);
  const double scores =
      4 * tokens * static_cast<double>(o.tokens) / 2 * static_cast<double>(c.heads * c.head_dim);
  report("layer forward", best_seconds(o, [&] { model->forward(0, w[1], x, batch); }), matmul + scores);
  engine::LayerGraph graph;
  const double forward = best_seconds(o, [&] { graph = model->forward_graph(0, w[1], x, batch); });
  const double both = best_seconds(o, [&] {
    graph = model->forward_graph(0, w[1], x, batch);
    model->backward(0, std::move(graph), w[1], grad, true);
  });
  report("layer forward with graph", forward, matmul + scores);
  report("layer backward", both - forward, 2 * matmul + 2.5 * scores);
  const double head = 2 * tokens * static_cast<double>(c.vocab * c.hidden);
  report("loss", best_seconds(o, [&] { model->loss(w[2], w[0], x, batch, 1 / tokens, true); }), 3 * head);
  report("loss without gradients", best_seconds(o, [&] { model->loss(w[2], w[0], x, batch, 1, false); }),
         head);
  report("embedding and its gradient",
         best_seconds(o, [&] { model->embed_backward(w[0], model->embed(w[0], batch), batch); }), 0);

  const int64_t q_width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
  const at::Tensor q = x.narrow(2, 0, q_width).contiguous().set_requires_grad(true),
                   k = x.narrow(2, 0, kv_width).contiguous().set_requires_grad(true);
  at::Tensor out;
  const auto attend = [&] {
    out = engine::attention(q, k, k, {c.heads, c.kv_heads, c.head_dim}, batch.pieces);
  };
  const double attention = best_seconds(o, attend);
  report("  attention forward", attention, scores);
  const double attention_both = best_seconds(o, [&] {
    attend();
    out.backward(out);
  });
  report("  attention backward", attention_both - attention, 2.5 * scores);
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  CLI::App app("Time of a layer and of the loss");
  sluice::Options options;
  app.add_option("--batch", options.batch);
  app.add_option("--tokens", options.tokens);
  app.add_option("--repeats", options.repeats);
  app.add_option("--threads", options.threads);
  app.add_flag("--fp32", options.fp32);
  app.add_flag("--cpu", options.cpu);
  CLI11_PARSE(app, argc, argv);
  const auto device = sluice::gpu::make_emulated_device({.compute_threads = options.threads});
  const auto stream = device->create_stream("compute");
  stream->enqueue([&] { sluice::measure(options); });
  stream->synchronize();
}
