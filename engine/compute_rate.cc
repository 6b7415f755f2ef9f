#include "engine/compute_rate.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/rounds.h"
#include "base/statistics.h"
#include "engine/document_groups.h"
#include "engine/flops.h"
#include "engine/fused_attention.h"
#include "engine/model.h"
#include "engine/tensor_device.h"

namespace sluice::engine {
namespace {

constexpr int64_t kVocabulary = 16384;
constexpr uint64_t kBeyondCaches = 256 << 20;  // bytes
constexpr double kTogether = 5e-3;             // seconds of work that a stream is given before it is waited for, at the least

// What is computed at most.
struct SampleSize {
  int64_t layer_parameters;  // a larger layer is measured with halved widths
  int64_t tokens;
};

// Cores reach their rate with little, a GPU with thousands of tokens only. On a small one the layer leaves room for what is made of it:
// 6 bytes a parameter are its own, 4 more are there while it is made, and some as many are temporaries.
SampleSize size_on(gpu::Device& device) {
  if (device.host_addressable()) return {64 << 20, 512};
  return {std::min<int64_t>(256 << 20, static_cast<int64_t>(device.budget().limit() / 32)), 4096};
}

int64_t layer_parameters(HfConfig c) {
  c.layers = 1;
  int64_t count = 0;
  const offload::ModelDesc model = describe_model(c);
  for (const auto& tensor : model.blocks[1].tensors) count += static_cast<int64_t>(tensor.count());
  return count;
}

// One layer like the model's, tied, so that the head is cheap to make.
HfConfig one_layer(HfConfig c, const SampleSize& size) {
  while (layer_parameters(c) > size.layer_parameters && c.heads % 2 == 0 && c.kv_heads % 2 == 0)
    c.hidden /= 2, c.intermediate /= 2, c.heads /= 2, c.kv_heads /= 2;
  c.layers = 1;
  c.tied = true;
  c.vocab = std::min(c.vocab, kVocabulary);
  c.pad_token.reset();
  if (!name_of(c.family).trained) c.family = Family::llama;  // as fast, with the same widths
  c.max_positions = std::max(c.max_positions, size.tokens);
  return c;
}

BlockWeights weights_of(const offload::BlockPlace& block, at::ScalarType type, const at::Device& device) {
  const at::TensorOptions f32 = at::TensorOptions().dtype(at::kFloat).device(device);
  return {at::randn({static_cast<int64_t>(block.device_elements())}, f32).mul_(0.02).to(type),
          at::zeros({static_cast<int64_t>(block.trainable)}, f32)};
}

// Rows of one document each.
MicroBatch batch_of(int64_t rows, int64_t length, int64_t vocab, const at::Device& device) {
  const at::TensorOptions longs = at::TensorOptions().dtype(at::kLong).device(device);
  const std::vector<std::vector<int32_t>> pieces(static_cast<size_t>(rows), {0});
  const at::Tensor starts = at::empty({2 * rows * length}, at::TensorOptions().dtype(at::kInt));
  write_document_starts(pieces, length, {starts.data_ptr<int32_t>(), static_cast<size_t>(starts.numel())});
  MicroBatch batch{at::randint(vocab, {rows, length}, longs),
                   at::randint(vocab, {rows, length}, longs),
                   at::arange(length, longs).expand({rows, length}).contiguous(),
                   pieces,
                   static_cast<uint64_t>(rows * length),
                   starts.to(device)};
  batch.random = RandomKey{};
  return batch;
}

// Seconds of a call of work(i), i counting up, which runs on the stream; the median, as a step is made of many, fast and slow. Short calls
// go one after the other without a wait between them, as in a step: where enqueueing takes longer than running, that is what counts.
template <class Work>
double median_seconds(gpu::Stream& stream, double budget, const Work& work) {
  size_t next = 0;
  const auto seconds_of = [&](size_t calls) {
    const double begin = base::monotonic_seconds();
    for (size_t n = 0; n < calls; ++n) stream.enqueue([&work, i = next++] { work(i); });
    stream.synchronize();
    return (base::monotonic_seconds() - begin) / static_cast<double>(calls);
  };
  const double begin = base::monotonic_seconds();
  seconds_of(1);  // warms up
  std::vector<double> all{seconds_of(1)};
  const auto together = static_cast<size_t>(std::clamp(kTogether / all.front(), 1.0, 64.0));
  if (together > 1) all.clear();
  while (all.empty() || base::monotonic_seconds() - begin < budget) all.push_back(seconds_of(together));
  return base::median(std::move(all));
}

// Made and used on the stream of a device.
class Sample {
 public:
  Sample(const MeasureOptions& o, gpu::Device& device)
      : config_(one_layer(o.config, size_on(device))),
        layout_(describe_model(config_), o.schema, 2 << 20),
        model_(make_model(config_, layout_, {.loss_chunk = o.loss_chunk, .pad_token = {}})),
        rows_(std::clamp<int64_t>(size_on(device).tokens / static_cast<int64_t>(o.sequence), 1, static_cast<int64_t>(o.micro_batch))),
        length_(std::min(size_on(device).tokens, static_cast<int64_t>(o.sequence))),
        flops_{layout_, config_, static_cast<uint64_t>(rows_), static_cast<uint64_t>(length_), 0} {
    const at::ScalarType type = compute_type(layout_);
    const at::Device on = tensor_device(device);
    (void)attention_kernel(on, type, config_.head_dim);  // says so where there is none
    embedding_ = weights_of(layout_.blocks().front(), type, on);
    head_ = weights_of(layout_.blocks().back(), type, on);
    // Other layers' weights and gradients lie between two uses of one: none is found in the caches.
    const uint64_t layer = layout_.blocks()[1].device_elements() * (2 + 4);
    for (uint64_t bytes = 0; bytes < kBeyondCaches; bytes += layer) layers_.push_back(weights_of(layout_.blocks()[1], type, on));
    batch_ = batch_of(rows_, length_, config_.vocab, on);
    x_ = model_->embed(embedding_, batch_) * 50;
    gradient_ = x_ * 1e-3;
  }

  // Seconds per FLOP of a whole step: forward and backward of every layer, and the loss.
  double seconds_per_flop(gpu::Stream& stream, const HfConfig& full, double budget) {
    const auto nth = [&](size_t i) -> BlockWeights& { return layers_[i % layers_.size()]; };
    const auto layer_work = [&](size_t i) {
      model_->forward(0, nth(2 * i), x_, batch_);
      LayerGraph graph = model_->forward_graph(0, nth(2 * i + 1), x_, batch_);
      model_->backward(0, std::move(graph), nth(2 * i + 1), gradient_, true);
    };
    const auto loss_work = [&](size_t) { model_->loss(head_, embedding_, x_, batch_, 1e-3, true); };
    const double layer = median_seconds(stream, budget, layer_work) / (flops_.layer_forward(1) + flops_.layer_backward(1, true));
    const double loss = median_seconds(stream, budget, loss_work) / flops_.loss(true);
    const double layers = 8.0 * static_cast<double>(full.layers) * static_cast<double>(layer_parameters(full));
    const double head = 6.0 * static_cast<double>(full.vocab * full.hidden);
    return (layer * layers + loss * head) / (layers + head);
  }

 private:
  const HfConfig config_;
  const offload::Layout layout_;
  const std::unique_ptr<Model> model_;
  const int64_t rows_, length_;
  const StepFlops flops_;
  BlockWeights embedding_, head_;
  std::vector<BlockWeights> layers_;
  MicroBatch batch_;
  at::Tensor x_, gradient_;
};

// The middle matrix of a layer on a sample's tokens.
struct Product {
  Product(const MeasureOptions& o, gpu::Device& device) {
    const SampleSize size = size_on(device);
    const HfConfig c = one_layer(o.config, size);
    const at::ScalarType type = compute_type(o.schema);
    const at::TensorOptions f32 = at::TensorOptions().dtype(at::kFloat).device(tensor_device(device));
    x = at::randn({size.tokens, c.hidden}, f32).to(type);
    w = at::randn({c.intermediate, c.hidden}, f32).to(type).t();
    out = at::zeros({size.tokens, c.intermediate}, f32.dtype(type));
    flops = 2.0 * static_cast<double>(size.tokens * c.hidden * c.intermediate);
  }
  at::Tensor x, w, out;
  double flops = 0;
};

// On the stream, as LibTorch's tensors of a device are.
template <class T>
std::unique_ptr<T> make_on(gpu::Stream& stream, const MeasureOptions& options, gpu::Device& device) {
  std::unique_ptr<T> made;
  stream.enqueue([&] { made = std::make_unique<T>(options, device); });
  stream.synchronize();
  return made;
}

}  // namespace

double measure_product(const MeasureOptions& options, gpu::Device& device) {
  const auto stream = device.create_stream("compute");
  const auto product = make_on<Product>(*stream, options, device);
  return product->flops / median_seconds(*stream, options.seconds, [&](size_t) { at::mm_out(product->out, product->x, product->w); });
}

base::Rounds measure_compute(const MeasureOptions& options, gpu::Device& device, int rounds) {
  const auto stream = device.create_stream("compute");
  const auto sample = make_on<Sample>(*stream, options, device);
  base::Rounds found;
  for (int i = 0; i < rounds; ++i) found.rates.push_back(1 / sample->seconds_per_flop(*stream, options.config, options.seconds));
  return found;
}

}  // namespace sluice::engine
