#include "engine/step_buffers.h"

#include <ATen/ops/from_blob.h>

#include "base/error.h"
#include "engine/tensor_device.h"

namespace sluice::engine {

using offload::Ring;

namespace {

constexpr Ring kTileRings[] = {Ring::weights, Ring::weights_held, Ring::state, Ring::gradients, Ring::device_gradients, Ring::tied_gradients};
constexpr Ring kWeightSlots[] = {Ring::device_layer, Ring::device_kept, Ring::device_big};
constexpr Ring kGradientSlots[] = {Ring::grad_layer, Ring::grad_big};
constexpr Ring kBytes[] = {Ring::shard_layer, Ring::shard_big, Ring::wire_layer, Ring::wire_big};
constexpr Ring kInputs[] = {Ring::boundary_even, Ring::boundary_odd, Ring::boundary_back};

}  // namespace

StepBuffers::StepBuffers(const StepShape& shape, gpu::Device& device, base::Budget& host)
    : shape_(shape), device_(device), host_(host) {
  place_rings();
  place_homes();
  make_slots();
  make_step_tensors();
}

std::byte* StepBuffers::host(const std::string& purpose, uint64_t bytes, Crosses crosses) {
  if (bytes == 0) return nullptr;
  base::Reservation charge = host_.reserve(purpose, bytes);
  base::Arena arena(bytes, purpose);
  auto registered = crosses == Crosses::to_device ? device_.register_host(arena.all()) : nullptr;
  host_arenas_.push_back({std::move(charge), std::move(arena), std::move(registered)});
  return host_arenas_.back().arena.data();
}

std::byte* StepBuffers::device(const std::string& purpose, uint64_t bytes) {
  if (bytes == 0) return nullptr;
  device_arenas_.push_back(device_.allocate(bytes, purpose));
  return device_arenas_.back()->data();
}

at::Tensor StepBuffers::over(std::byte* data, at::IntArrayRef sizes, at::ScalarType type) const {
  return at::from_blob(data, sizes, at::TensorOptions().dtype(type).device(tensor_device(device_)));
}

void StepBuffers::place_rings() {
  for (const Ring ring : kTileRings) {
    const bool on_device = ring == Ring::device_gradients || (ring == Ring::tied_gradients && shape_.state_on_device(0));
    const std::string purpose = offload::to_string(ring);
    const Crosses crosses = ring == Ring::state ? Crosses::no : Crosses::to_device;
    rings_[static_cast<size_t>(ring)] = on_device ? device(purpose, shape_.ring_bytes(ring)) : host(purpose, shape_.ring_bytes(ring), crosses);
  }
}

void StepBuffers::place_homes() {
  const auto& layout = shape_.layout();
  const auto& tiles = layout.tiles();
  std::byte* at = device("resident weights", shape_.resident_bytes());
  resident_.resize(layout.blocks().size());
  for (uint32_t b = 0; b < layout.blocks().size(); ++b) {
    if (!shape_.resident(b)) continue;
    const uint64_t elements = shape_.resident_elements(b);
    resident_[b] = over(at, {static_cast<int64_t>(elements)}, compute_type(layout));
    at += elements * shape_.weight_bytes();
  }
  std::byte* weights = host("weights in RAM", shape_.weights_home_bytes(), Crosses::to_device);
  std::byte* ram_state = host("optimizer state in RAM", shape_.state_home_bytes(StepShape::Place::ram), Crosses::no);
  std::byte* device_state = device("optimizer state", shape_.state_home_bytes(StepShape::Place::device));
  std::byte* shadow = host("shadows", shape_.shadow_bytes(), Crosses::no);
  weights_homes_.resize(tiles.size());
  state_homes_.resize(tiles.size());
  shadows_.resize(tiles.size());
  for (uint32_t i = 0; i < tiles.size(); ++i) {
    const bool on_device = shape_.state_on_device(tiles[i].block);
    if (shape_.has_weights_home(i)) {
      weights_homes_[i] = on_device ? resident_place(tiles[i]) : weights;
      if (!on_device) weights += layout.weights_extent_bytes(tiles[i]);
    }
    if (shape_.has_state_home(i)) {
      std::byte*& next = on_device ? device_state : ram_state;
      state_homes_[i] = next;
      next += layout.state_extent_bytes(tiles[i]);
    }
    if (shape_.has_shadow(i)) {
      shadows_[i] = shadow;
      shadow += layout.weights_extent_bytes(tiles[i]) + layout.state_extent_bytes(tiles[i]);
    }
  }
}

void StepBuffers::make_slots() {
  for (const Ring ring : kWeightSlots) {
    std::byte* at = device(offload::to_string(ring), shape_.ring_bytes(ring));
    for (uint32_t i = 0; i < shape_.ring_size(ring); ++i, at += shape_.ring_buffer_bytes(ring)) {
      const auto elements = static_cast<int64_t>(shape_.ring_buffer_bytes(ring) / shape_.weight_bytes());
      slots_[static_cast<size_t>(ring)].push_back(over(at, {elements}, compute_type(shape_.layout())));
    }
  }
  for (const Ring ring : kGradientSlots) {
    std::byte* at = device(offload::to_string(ring), shape_.ring_bytes(ring));
    for (uint32_t i = 0; i < shape_.ring_size(ring); ++i, at += shape_.ring_buffer_bytes(ring))
      slots_[static_cast<size_t>(ring)].push_back(
          over(at, {static_cast<int64_t>(shape_.ring_buffer_bytes(ring) / sizeof(float))}, at::kFloat));
  }
  for (const Ring ring : kBytes) rings_[static_cast<size_t>(ring)] = device(offload::to_string(ring), shape_.ring_bytes(ring));
}

void StepBuffers::make_step_tensors() {
  const StepOptions& o = shape_.options();
  const int64_t b = o.micro_batch, t = o.sequence, h = o.hidden;
  std::byte* boundaries = device("boundaries", shape_.boundaries() * shape_.boundary_bytes());
  // A storage each: kept graphs check the version of their own input, which writing the others must not change.
  for (uint64_t i = 0; i < shape_.boundaries(); ++i)
    boundaries_.push_back(over(boundaries + i * shape_.boundary_bytes(), {b, t, h}, compute_type(shape_.layout())));
  for (const Ring ring : kInputs) {
    std::byte* at = device(offload::to_string(ring), shape_.ring_bytes(ring));
    for (uint32_t i = 0; i < shape_.ring_size(ring); ++i, at += shape_.boundary_bytes())
      slots_[static_cast<size_t>(ring)].push_back(over(at, {b, t, h}, compute_type(shape_.layout())));
  }
  host_boundaries_ = host("boundaries", shape_.host_boundaries() * shape_.boundary_bytes(), Crosses::to_device);
  tokens_ = over(device("tokens", o.micro_batches * shape_.token_bytes()), {static_cast<int64_t>(o.micro_batches), 4, b, t}, at::kLong);
  losses_ = over(device("losses", shape_.loss_bytes()), {static_cast<int64_t>(o.micro_batches)}, at::kDouble);
  leaf_sums_ = reinterpret_cast<double*>(device("leaf sums", shape_.leaf_sum_bytes()));
  exchange_ = host("tokens", shape_.exchange_bytes(), Crosses::to_device);
}

std::byte* StepBuffers::ring(Ring ring, uint32_t buffer) const {
  SLUICE_CHECK(buffer < shape_.ring_size(ring), offload::to_string(ring));
  return rings_[static_cast<size_t>(ring)] + buffer * shape_.ring_buffer_bytes(ring);
}

std::byte* StepBuffers::weights_home(uint32_t tile) const { return weights_homes_[tile]; }
std::byte* StepBuffers::state_home(uint32_t tile) const { return state_homes_[tile]; }
std::byte* StepBuffers::shadow(uint32_t tile) const { return shadows_[tile]; }

at::Tensor StepBuffers::slot(Ring ring, uint32_t buffer, uint32_t block) const {
  const auto elements = static_cast<int64_t>(shape_.layout().blocks()[block].device_elements());
  return slots_[static_cast<size_t>(ring)].at(buffer).narrow(0, 0, elements);
}

uint64_t StepBuffers::offset_in_block(const offload::Tile& tile) const {
  const uint64_t segment = tile.trainable ? 0 : shape_.layout().blocks()[tile.block].padded_trainable();
  return (segment + tile.first) * shape_.weight_bytes();
}

uint64_t StepBuffers::offset_in_shard(const offload::Tile& tile) const {
  const auto& block = shape_.layout().blocks()[tile.block];
  const uint64_t first = block.shard(tile.trainable, tile.shard).first;
  return (shape_.shard_start(block, tile.trainable) + tile.first - first) * shape_.weight_bytes();
}

std::byte* StepBuffers::resident_place(const offload::Tile& tile) const {
  return static_cast<std::byte*>(resident_[tile.block].data_ptr()) + (shape_.gathers() ? offset_in_shard(tile) : offset_in_block(tile));
}

void StepBuffers::refilled(const at::Tensor& slot) { slot.unsafeGetTensorImpl()->bump_version(); }

at::Tensor StepBuffers::gradient(Ring ring, uint32_t buffer, uint32_t block) const {
  const auto elements = static_cast<int64_t>(shape_.layout().blocks()[block].trainable);
  return slots_[static_cast<size_t>(ring)].at(buffer).narrow(0, 0, elements);
}

at::Tensor StepBuffers::boundary(uint32_t block, uint32_t micro) const {
  const StepOptions& o = shape_.options();
  const uint32_t first = o.host_boundaries ? static_cast<uint32_t>(shape_.layout().blocks().size() - 1) - o.keep_graphs : 1;
  return boundaries_.at(o.training ? size_t{block - first} * o.micro_batches + micro : micro);
}
std::byte* StepBuffers::host_boundary(uint32_t block, uint32_t micro) const {
  return host_boundaries_ + (size_t{block - 1} * shape_.options().micro_batches + micro) * shape_.boundary_bytes();
}
at::Tensor StepBuffers::any_input(uint32_t block) const {
  const Ring ring = block % 2 == 0 ? Ring::boundary_even : Ring::boundary_odd;
  return shape_.stays_on_device(block) ? boundary(block, 0) : whole(ring, 0);
}
at::Tensor StepBuffers::boundary_gradient(uint32_t micro) const {
  return boundaries_.at(boundaries_.size() - shape_.options().micro_batches + micro);
}
at::Tensor StepBuffers::tokens(uint32_t micro) const { return tokens_.select(0, micro); }
at::Tensor StepBuffers::loss(uint32_t micro) const { return losses_.select(0, micro); }

std::byte* StepBuffers::host_tokens(uint64_t period, uint32_t micro) const {
  const uint64_t micros = shape_.options().micro_batches;
  return exchange_ + (period % kPeriodsAtWork * micros + micro) * shape_.token_bytes();
}

double* StepBuffers::host_loss(uint64_t period, uint32_t micro) const {
  const uint64_t micros = shape_.options().micro_batches;
  std::byte* losses = exchange_ + kPeriodsAtWork * micros * shape_.token_bytes();
  return reinterpret_cast<double*>(losses) + period % kPeriodsAtWork * micros + micro;
}

double* StepBuffers::host_leaf_sums() const {
  return shape_.leaf_sum_bytes() == 0 ? nullptr : host_loss(kPeriodsAtWork - 1, 0) + shape_.options().micro_batches;
}

std::vector<std::span<std::byte>> StepBuffers::host_regions() const {
  std::vector<std::span<std::byte>> regions;
  for (const auto& arena : host_arenas_) regions.push_back(arena.arena.all());
  return regions;
}

}  // namespace sluice::engine
