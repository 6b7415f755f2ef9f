// What a GPU does per second, as one JSON document: copies by chunk size, the optimizer's kernels, and for layers of 1B and 7B models
// the time to enqueue beside the time to run. Without a GPU the document says why it is empty.   gpu_bench [--quick]
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "engine/document_groups.h"
#include "engine/fused_attention.h"
#include "engine/model.h"
#include "gpu/cuda_device.h"
#include "gpu/cuda_report.h"

namespace sluice {
namespace {

using namespace base;
using nlohmann::ordered_json;

const at::Device kGpu(at::kCUDA, 0);
constexpr int kRepeats = 5;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Times {
  double enqueue = 1e9, run = 1e9;  // seconds, best of the repeats; run: until the device is done
};

Times measure(gpu::Stream& stream, const std::function<void()>& work) {
  Times best;
  for (int i = 0; i <= kRepeats; ++i) {  // the first loads kernels
    stream.synchronize();
    const double begin = now();
    work();
    const double enqueued = now();
    stream.synchronize();
    if (i == 0) continue;
    best.enqueue = std::min(best.enqueue, enqueued - begin);
    best.run = std::min(best.run, now() - begin);
  }
  return best;
}

ordered_json copies(bool quick) {
  ordered_json rows = ordered_json::array();
  for (const uint64_t chunk : {64_KiB, 256_KiB, 1_MiB, 4_MiB, 16_MiB, 64_MiB, 256_MiB}) {
    if (quick && chunk != 4_MiB) continue;
    const gpu::CopyRates rates = gpu::measure_copies(0, 256_MiB, chunk, false);
    rows.push_back({{"chunk_bytes", chunk},
                    {"h2d_bytes_per_s", rates.h2d},
                    {"d2h_bytes_per_s", rates.d2h},
                    {"h2d_beside_bytes_per_s", rates.h2d_beside},
                    {"d2h_beside_bytes_per_s", rates.d2h_beside}});
  }
  return rows;
}

ordered_json optimizer(gpu::Device& device, gpu::Stream& stream) {
  constexpr size_t kTile = 2 << 20, kTiles = 16, kCount = kTile * kTiles;
  const auto hi = device.allocate(2 * kCount, "bench"), lo = device.allocate(2 * kCount, "bench"), m = device.allocate(4 * kCount, "bench"),
             v = device.allocate(4 * kCount, "bench"), grad = device.allocate(4 * kCount, "bench"),
             sums = device.allocate(kCount / gpu::kLeafElements * sizeof(double), "bench");
  gpu::AdamRun run{.hi = reinterpret_cast<uint16_t*>(hi->data()),
                   .lo = reinterpret_cast<int16_t*>(lo->data()),
                   .m = reinterpret_cast<float*>(m->data()),
                   .v = reinterpret_cast<float*>(v->data()),
                   .grad = {grad->data(), nullptr, gpu::WireType::bf16},
                   .factors = {.lr_decay = 1, .beta1 = 0.9f, .one_minus_beta1 = 0.1f, .beta2 = 0.95f, .one_minus_beta2 = 0.05f,
                               .eps = 1e-8f, .step_size = 1e-3f, .inv_sqrt_bias2 = 1},
                   .count = kCount};
  const double adam = measure(stream, [&] { stream.adam(run); }).run;
  const double norm = measure(stream, [&] { stream.leaf_norms(reinterpret_cast<double*>(sums->data()), run.grad, kCount); }).run;
  const double tile_norm = measure(stream, [&] { stream.leaf_norms(reinterpret_cast<double*>(sums->data()), run.grad, kTile); }).run;
  const double cast = measure(stream, [&] {
                        stream.cast_out(hi->data(), reinterpret_cast<const float*>(grad->data()), kCount, gpu::WireType::bf16);
                      }).run;
  return {{"adam_params_per_s", kCount / adam},       {"adam_bytes_per_s", 26.0 * kCount / adam}, {"norm_params_per_s", kCount / norm},
          {"norm_of_a_tile_seconds", tile_norm},      {"cast_bytes_per_s", 6.0 * kCount / cast}};
}

struct Shape {
  const char* name;
  int64_t hidden, intermediate, heads, kv_heads, head_dim;
};
constexpr Shape kShapes[] = {{"1B", 2048, 8192, 32, 8, 64}, {"7B", 4096, 14336, 32, 8, 128}};

engine::HfConfig config_of(const Shape& s) {
  engine::HfConfig c;
  c.hidden = s.hidden;
  c.intermediate = s.intermediate;
  c.layers = 1;
  c.heads = s.heads;
  c.kv_heads = s.kv_heads;
  c.head_dim = s.head_dim;
  c.vocab = 128;
  c.norm_eps = 1e-5;
  c.rope_theta = 1e4;
  c.tied = true;
  return c;
}

engine::MicroBatch batch_of(int64_t tokens) {
  const at::TensorOptions longs = at::TensorOptions().dtype(at::kLong).device(kGpu);
  const std::vector<std::vector<int32_t>> pieces{{0}};
  const at::Tensor starts = at::empty({2 * tokens}, at::TensorOptions().dtype(at::kInt));
  engine::write_document_starts(pieces, tokens, {starts.data_ptr<int32_t>(), static_cast<size_t>(2 * tokens)});
  const at::Tensor ids = at::zeros({1, tokens}, longs);
  return {ids, ids, at::arange(tokens, longs).unsqueeze(0), pieces, static_cast<uint64_t>(tokens), starts.to(kGpu)};
}

ordered_json layer(const Shape& shape, int64_t tokens, gpu::Stream& stream) {
  const engine::HfConfig config = config_of(shape);
  const offload::Layout layout(engine::describe_llama(config), offload::Schema::bf16, 2 << 20);
  const auto model = engine::make_llama(config, layout, {});
  const auto& block = layout.blocks()[1];
  engine::BlockWeights weights;
  engine::MicroBatch batch;
  at::Tensor x, grad;
  stream.enqueue([&] {
    const at::TensorOptions fp32 = at::TensorOptions().dtype(at::kFloat).device(kGpu);
    weights = {(at::randn({static_cast<int64_t>(block.device_elements())}, fp32) * 0.02).to(at::kBFloat16),
               at::zeros({static_cast<int64_t>(block.trainable)}, fp32)};
    batch = batch_of(tokens);
    x = at::randn({1, tokens, shape.hidden}, fp32).to(at::kBFloat16);
    grad = x * 1e-3;
  });
  const Times forward = measure(stream, [&] { stream.enqueue([&] { model->forward(0, weights, x, batch); }); });
  const Times both = measure(stream, [&] {
    stream.enqueue([&] { model->backward(0, model->forward_graph(0, weights, x, batch), weights, grad, true); });
  });
  stream.synchronize();
  const double flop = 2.0 * static_cast<double>(tokens) * static_cast<double>(block.trainable) +
                      2.0 * static_cast<double>(tokens * tokens * shape.heads * shape.head_dim);
  return {{"shape", shape.name},
          {"tokens", tokens},
          {"attention", engine::attention_kernel(kGpu, at::kBFloat16, shape.head_dim)},
          {"forward_enqueue_seconds", forward.enqueue},
          {"forward_seconds", forward.run},
          {"recompute_and_backward_enqueue_seconds", both.enqueue},
          {"recompute_and_backward_seconds", both.run},
          {"forward_flop_per_s", flop / forward.run},
          {"compute_thread_keeps_ahead", both.enqueue < 0.8 * both.run}};
}

ordered_json run(bool quick) {
  const gpu::CudaUse use = gpu::can_use_cuda();
  if (!use.usable) return {{"skipped", use.reason}};
  ordered_json document{{"device", use.reason}, {"copies", copies(quick)}};
  const auto device = gpu::make_cuda_device({});
  const auto stream = device->create_stream("bench");
  document["optimizer"] = optimizer(*device, *stream);
  document["layers"] = ordered_json::array();
  for (const Shape& shape : kShapes)
    for (const int64_t tokens : {1024, 4096})
      if (!quick || tokens == 1024) document["layers"].push_back(layer(shape, tokens, *stream));
  return document;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  CLI::App app("Rates of a GPU, as JSON");
  bool quick = false;
  app.add_flag("--quick", quick, "One size of each");
  CLI11_PARSE(app, argc, argv);
  try {
    fmt::print("{}\n", sluice::run(quick).dump(2));
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_bench: {}\n", error.what());
    return 1;
  }
}
