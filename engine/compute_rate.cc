#include "engine/compute_rate.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/statistics.h"
#include "engine/flops.h"
#include "engine/model.h"
#include "engine/tensor_device.h"

namespace sluice::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kLayerParameters = 64 << 20;  // a larger layer is measured with halved widths
constexpr int64_t kTokens = 512;
constexpr int64_t kVocabulary = 16384;
constexpr uint64_t kBeyondCaches = 256 << 20;  // bytes; at most 1.5 times as many are taken with the largest layer

int64_t layer_parameters(HfConfig c) {
  c.layers = 1;
  int64_t count = 0;
  const offload::ModelDesc model = describe_model(c);
  for (const auto& tensor : model.blocks[1].tensors) count += static_cast<int64_t>(tensor.count());
  return count;
}

// One layer like the model's, tied, so that the head is cheap to make.
HfConfig one_layer(HfConfig c) {
  while (layer_parameters(c) > kLayerParameters && c.heads % 2 == 0 && c.kv_heads % 2 == 0)
    c.hidden /= 2, c.intermediate /= 2, c.heads /= 2, c.kv_heads /= 2;
  c.layers = 1;
  c.tied = true;
  c.vocab = std::min(c.vocab, kVocabulary);
  c.pad_token.reset();
  if (!name_of(c.family).trained) c.family = Family::llama;  // as fast, with the same widths
  c.max_positions = std::max(c.max_positions, kTokens);
  return c;
}

BlockWeights weights_of(const offload::BlockPlace& block, at::ScalarType type) {
  const at::TensorOptions f32 = at::TensorOptions().dtype(at::kFloat);
  return {(at::randn({static_cast<int64_t>(block.device_elements())}, f32) * 0.02).to(type),
          at::zeros({static_cast<int64_t>(block.trainable)}, f32)};
}

// Of calls of work(i), i counting up. The median: a step is made of many, fast and slow.
template <class Work>
double median_seconds(double budget, const Work& work) {
  std::vector<double> all;
  const auto begin = Clock::now();
  for (size_t i = 0; i < 2 || std::chrono::duration<double>(Clock::now() - begin).count() < budget; ++i) {
    const auto start = Clock::now();
    work(i);
    if (i > 0) all.push_back(std::chrono::duration<double>(Clock::now() - start).count());  // the first warms up
  }
  return base::median(std::move(all));
}

class Sample {
 public:
  Sample(const HfConfig& full, const MeasureOptions& o)
      : config_(one_layer(full)),
        layout_(describe_model(config_), o.schema, 2 << 20),
        model_(make_model(config_, layout_, {.loss_chunk = o.loss_chunk, .pad_token = {}})),
        rows_(std::clamp<int64_t>(kTokens / static_cast<int64_t>(o.sequence), 1,
                                  static_cast<int64_t>(o.micro_batch))),
        length_(std::min<int64_t>(kTokens, static_cast<int64_t>(o.sequence))),
        flops_{layout_, config_, static_cast<uint64_t>(rows_), static_cast<uint64_t>(length_), 0} {
    const at::ScalarType type = compute_type(layout_);
    embedding_ = weights_of(layout_.blocks().front(), type);
    head_ = weights_of(layout_.blocks().back(), type);
    // Other layers' weights and gradients lie between two uses of one: none is found in the caches.
    const uint64_t layer = layout_.blocks()[1].device_elements() * (2 + 4);
    for (uint64_t bytes = 0; bytes < kBeyondCaches; bytes += layer) layers_.push_back(weights_of(layout_.blocks()[1], type));
    const at::TensorOptions longs = at::TensorOptions().dtype(at::kLong);
    batch_ = {at::randint(config_.vocab, {rows_, length_}, longs),
              at::randint(config_.vocab, {rows_, length_}, longs),
              at::arange(length_, longs).expand({rows_, length_}).contiguous(),
              std::vector<std::vector<int32_t>>(static_cast<size_t>(rows_), {0}),
              static_cast<uint64_t>(rows_ * length_)};
    batch_.random = RandomKey{};
    x_ = model_->embed(embedding_, batch_) * 50;
    gradient_ = x_ * 1e-3;
  }

  // Seconds per FLOP of a whole step: forward and backward of every layer, and the loss.
  double seconds_per_flop(const HfConfig& full, double budget) {
    const auto nth = [&](size_t i) -> BlockWeights& { return layers_[i % layers_.size()]; };
    const double layer = median_seconds(budget,
                                        [&](size_t i) {
                                          model_->forward(0, nth(2 * i), x_, batch_);
                                          LayerGraph graph = model_->forward_graph(0, nth(2 * i + 1), x_, batch_);
                                          model_->backward(0, std::move(graph), nth(2 * i + 1), gradient_, true);
                                        }) /
                         (flops_.layer_forward(1) + flops_.layer_backward(1, true));
    const double loss =
        median_seconds(budget, [&](size_t) { model_->loss(head_, embedding_, x_, batch_, 1e-3, true); }) /
        flops_.loss(true);
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

// The middle matrix of a layer on a few hundred tokens.
double product_seconds_per_flop(const HfConfig& full, const MeasureOptions& o) {
  const HfConfig c = one_layer(full);
  const at::ScalarType type = compute_type(o.schema);
  const at::Tensor x = at::randn({kTokens, c.hidden}).to(type), w = at::randn({c.intermediate, c.hidden}).to(type).t();
  at::Tensor out = at::zeros({kTokens, c.intermediate}, at::TensorOptions().dtype(type));
  const double flops = 2.0 * static_cast<double>(kTokens * c.hidden * c.intermediate);
  return median_seconds(o.seconds, [&](size_t) { at::mm_out(out, x, w); }) / flops;
}

}  // namespace

double measure_product(const MeasureOptions& options, gpu::Device& device) {
  const auto stream = device.create_stream("compute");
  double seconds = 0;
  stream->enqueue([&] { seconds = product_seconds_per_flop(options.config, options); });
  stream->synchronize();
  return 1 / seconds;
}

base::Rounds measure_compute(const MeasureOptions& options, gpu::Device& device, int rounds) {
  const auto stream = device.create_stream("compute");
  base::Rounds found;
  stream->enqueue([&] {
    Sample sample(options.config, options);
    for (int i = 0; i < rounds; ++i) found.rates.push_back(1 / sample.seconds_per_flop(options.config, options.seconds));
  });
  stream->synchronize();
  return found;
}

}  // namespace sluice::engine
