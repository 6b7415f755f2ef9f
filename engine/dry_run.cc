#include "engine/dry_run.h"

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "engine/document_groups.h"
#include "engine/step_data.h"

namespace sluice::engine {
namespace {

using offload::Ring;

// One pass over the kinds of blocks on the compute thread. Every number is relative to the bytes alive before the operation.
class DryRun {
 public:
  DryRun(Model& model, const StepShape& shape, StepBuffers& buffers, gpu::Device& device, const DryRunOptions& options,
         const HostMicroBatch& host)
      : model_(model), shape_(shape), layout_(shape.layout()), buffers_(buffers), device_(device), options_(options) {
    const at::Tensor ids = buffers.tokens(0);
    batch_ = {ids.select(0, 0), ids.select(0, 1), ids.select(0, 2), host.pieces, host.trained,
              ids.select(0, 3).flatten().view(at::kInt)};
    if (options.training) batch_.random = RandomKey{};
    head_ = static_cast<uint32_t>(layout_.blocks().size() - 1);
  }

  uint64_t run() {
    pass();  // fills the caches that the model keeps
    layers_.clear();
    return pass();
  }
  uint64_t most_alive() const { return most_alive_; }  // bytes of all tensors at the worst moment so far

 private:
  using Key = std::vector<std::pair<std::vector<int64_t>, bool>>;
  struct Layer {
    uint64_t forward = 0, graph_peak = 0, graph = 0, backward = 0;
  };

  uint64_t pass() {
    const uint32_t kept_from = options_.training ? std::max(head_ - options_.keep_graphs, options_.lowest_trainable) : head_;
    const uint64_t micros = shape_.options().micro_batches;
    uint64_t worst = measure([&] { copy(input(1), model_.embed(weights(0, false), batch_)); });
    uint64_t kept = 0;
    for (uint32_t b = 1; b < head_; ++b) {
      const Layer& layer = measured(b);
      worst = std::max(worst, kept + layer.forward);
      if (b < kept_from) continue;
      worst = std::max(worst, kept + (micros - 1) * layer.graph + layer.graph_peak);
      kept += micros * layer.graph;
    }
    worst = std::max(worst, kept + loss());
    if (!options_.training) return worst;
    for (uint32_t b = head_ - 1; b >= 1 && b >= options_.lowest_trainable; --b) {
      const Layer& layer = measured(b);
      worst = std::max(worst, kept + (b < kept_from ? std::max(layer.graph_peak, layer.backward) : layer.backward - layer.graph));
      if (b >= kept_from) kept -= micros * layer.graph;
    }
    if (options_.lowest_trainable == 0)
      worst = std::max(worst, measure([&] { model_.embed_backward(weights(0, true), buffers_.boundary_gradient(0), batch_); }));
    return worst;
  }

  uint64_t loss() {
    return measure([&] {
      const BlockWeights norm = weights(head_, options_.training);
      const BlockWeights matrix = layout_.tied() ? weights(0, options_.training) : norm;
      const auto result = model_.loss(norm, matrix, input(head_), batch_, 1.0, options_.training);
      if (result.grad_input.defined()) copy(buffers_.boundary_gradient(0), result.grad_input);
    });
  }

  // Layers whose tensors have equal shapes and trainable flags, and that want the same gradients, need equal memory.
  const Layer& measured(uint32_t block) {
    Key key;
    key.emplace_back(std::vector<int64_t>{}, options_.lowest_trainable < block);  // is an input gradient wanted?
    for (const auto& tensor : layout_.blocks()[block].tensors) key.emplace_back(tensor.shape, tensor.trainable);
    const auto [it, fresh] = layers_.try_emplace(key);
    if (!fresh) return it->second;
    Layer& layer = it->second;
    const BlockWeights w = weights(block, options_.training);
    const at::Tensor x = input(block);
    layer.forward = measure([&] { copy(input(block + 1), model_.forward(block - 1, w, x, batch_)); });
    if (!options_.training || block < options_.lowest_trainable) return layer;
    LayerGraph graph;
    const uint64_t before = device_.memory().temporaries;
    layer.graph_peak = measure([&] { graph = model_.forward_graph(block - 1, w, x, batch_); });
    layer.graph = device_.memory().temporaries - before;
    layer.backward = layer.graph + measure([&] {
      const bool below = options_.lowest_trainable < block;
      const at::Tensor gradient =
          model_.backward(block - 1, std::move(graph), w, buffers_.boundary_gradient(0), below);
      if (below) copy(buffers_.boundary_gradient(0), gradient);
    });
    return layer;
  }

  // Most bytes above those alive at the start.
  uint64_t measure(const std::function<void()>& operation) {
    const uint64_t before = device_.memory().temporaries;
    device_.reset_peak();
    operation();
    const uint64_t peak = device_.memory().temporaries_peak;
    most_alive_ = std::max(most_alive_, peak);
    return peak > before ? peak - before : 0;
  }

  static void copy(at::Tensor to, const at::Tensor& from) { to.copy_(from); }
  at::Tensor input(uint32_t block) const { return buffers_.any_input(block); }

  BlockWeights weights(uint32_t block, bool gradient) const {
    const bool big = is_big(layout_, block);
    BlockWeights w;
    if (!shape_.through_slots(block)) {
      w.flat = buffers_.resident(block);
    } else {
      const Ring ring = big ? Ring::device_big : shape_.ring_size(Ring::device_layer) > 0 ? Ring::device_layer : Ring::device_kept;
      w.flat = buffers_.slot(ring, 0, block);
    }
    if (gradient && layout_.blocks()[block].trainable > 0)
      w.grad = buffers_.gradient(big ? Ring::grad_big : Ring::grad_layer, 0, block);
    return w;
  }

  Model& model_;
  const StepShape& shape_;
  const offload::Layout& layout_;
  StepBuffers& buffers_;
  gpu::Device& device_;
  const DryRunOptions options_;
  MicroBatch batch_;
  uint32_t head_ = 0;
  std::map<Key, Layer> layers_;
  uint64_t most_alive_ = 0;
};

// Documents of `piece` tokens; what is left over joins the last.
HostMicroBatch batch_of(const StepOptions& o, uint32_t piece) {
  const size_t plane = size_t{o.micro_batch} * o.sequence;
  HostMicroBatch batch;
  batch.ids.assign(4 * plane, 0);
  for (size_t i = 0; i < plane; ++i) batch.ids[2 * plane + i] = static_cast<int64_t>(i % o.sequence);
  std::vector<int32_t> starts;
  for (uint32_t start = 0; start + piece <= o.sequence; start += piece) starts.push_back(static_cast<int32_t>(start));
  batch.pieces.assign(o.micro_batch, starts);
  batch.trained = plane;
  write_starts(batch, o.sequence);
  return batch;
}

// Among these is the one that takes the most memory. Long documents on the CPU; a GPU's attention backward takes most with the
// fewest documents (its sums are split over the idle processors) or with as many as one call takes (each is padded).
std::vector<HostMicroBatch> extreme_batches(const StepOptions& o, gpu::DeviceKind device) {
  std::vector<HostMicroBatch> batches{batch_of(o, o.sequence)};
  if (device == gpu::DeviceKind::cuda && o.sequence > kTokensPerDocument) batches.push_back(batch_of(o, kTokensPerDocument));
  return batches;
}

}  // namespace

uint64_t measure_temporaries(Model& model, const StepShape& shape, StepBuffers& buffers, gpu::Device& device,
                             gpu::Stream& compute, const DryRunOptions& options) {
  const uint64_t before = device.memory().temporaries;
  uint64_t most = 0, most_alive = 0;
  for (const HostMicroBatch& batch : extreme_batches(shape.options(), device.kind())) {
    std::copy_n(reinterpret_cast<const std::byte*>(batch.ids.data()), shape.token_bytes(), buffers.host_tokens(0, 0));
    compute.copy_in(static_cast<std::byte*>(buffers.tokens(0).data_ptr()), buffers.host_tokens(0, 0), shape.token_bytes());
    compute.enqueue([&] {
      DryRun dry(model, shape, buffers, device, options, batch);
      most = std::max(most, dry.run());
      most_alive = std::max(most_alive, dry.most_alive());
    });
    compute.record().synchronize();
  }
  const uint64_t cached = device.memory().temporaries - before;
  // What a GPU's allocator cannot use of what it holds: parts of segments. The emulated device counts tensors alone.
  const uint64_t held = device.memory().held_peak, unusable = held > most_alive ? held - most_alive : 0;
  return cached + most + unusable;
}

}  // namespace sluice::engine
