// Time of one layer (forward, graph, backward) and of the loss at the shape of SmolLM2-135M, on the emulated
// device; attention also as LibTorch does it. Run by hand, or by cpu_trainer.py:
//   layer_bench [--batch 1] [--tokens 512] [--repeats 5] [--fp32] [--threads 1 --cpu] [--system-memory] [--json]
// With one thread, --cpu counts processor time, which other processes disturb less than the clock. --system-memory: without the emulated
// device, so that temporaries are the system's memory, with its page faults.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

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
  bool fp32 = false, cpu = false, system_memory = false, json = false;
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

// A line each, or all as one JSON object of seconds.
class Report {
 public:
  explicit Report(bool json) : json_(json) {}
  ~Report() {
    if (json_) fmt::print("{}\n", seconds_.dump());
  }
  void operator()(const char* what, double seconds, double flop) {
    seconds_[what] = seconds;
    if (!json_) fmt::print("{:34} {:8.2f} ms   {:6.0f} GFLOP/s\n", what, seconds * 1e3, flop / seconds * 1e-9);
  }

 private:
  const bool json_;
  nlohmann::ordered_json seconds_ = nlohmann::ordered_json::object();
};

BlockWeights make_weights(const offload::BlockPlace& block, at::ScalarType type) {
  const at::TensorOptions f32 = at::TensorOptions().dtype(at::kFloat);
  return {(at::randn({static_cast<int64_t>(block.device_elements())}, f32) * 0.02).to(type),
          at::zeros({static_cast<int64_t>(block.trainable)}, f32)};
}

// Forward, and backward apart from it.
void report_attention(const Options& o, Report& report, const std::string& name, double flop, const std::function<at::Tensor()>& attend) {
  at::Tensor out;
  const double forward = best_seconds(o, [&] { out = attend(); });
  report((name + " forward").c_str(), forward, flop);
  const double both = best_seconds(o, [&] {
    out = attend();
    out.backward(out);
  });
  report((name + " backward").c_str(), both - forward, 2.5 * flop);
}

void measure(const Options& o) {
  Report report(o.json);
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
  report_attention(o, report, "attention", scores, [&] { return engine::attention(q, k, k, {c.heads, c.kv_heads, c.head_dim}, batch.pieces); });
  const auto by_heads = [&](const at::Tensor& t, int64_t heads) { return t.view({o.batch, o.tokens, heads, c.head_dim}).transpose(1, 2); };
  report_attention(o, report, "attention of LibTorch", scores, [&] {
    const at::Tensor keys = by_heads(k, c.kv_heads);
    return at::scaled_dot_product_attention(by_heads(q, c.heads), keys, keys, {}, 0, true, {}, true);
  });
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
  app.add_flag("--system-memory", options.system_memory);
  app.add_flag("--json", options.json);
  CLI11_PARSE(app, argc, argv);
  if (options.system_memory) {
    if (options.threads > 0) at::set_num_threads(options.threads);
    sluice::measure(options);
    return 0;
  }
  const auto device = sluice::gpu::make_emulated_device({.compute_threads = options.threads});
  const auto stream = device->create_stream("compute");
  stream->enqueue([&] { sluice::measure(options); });
  stream->synchronize();
}
