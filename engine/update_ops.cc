#include "engine/update_ops.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/tile_state.h"

namespace sluice::engine {

using offload::Ring;

namespace {

std::vector<cpu_adam::GroupSpan> spans_of(const offload::Layout& layout, const offload::Tile& tile) {
  std::vector<cpu_adam::GroupSpan> spans;
  for (const auto& tensor : layout.blocks()[tile.block].tensors) {
    if (!tensor.trainable) continue;
    const uint64_t begin = std::max(tensor.offset, tile.first);
    const uint64_t end = std::min(tensor.offset + tensor.count, tile.first + tile.count);
    if (begin < end) spans.push_back({begin - tile.first, end - begin, tensor.group});
  }
  return spans;
}

cpu_adam::GradType gradient_type(gpu::WireType wire) {
  switch (wire) {
    case gpu::WireType::bf16: return cpu_adam::GradType::bf16;
    case gpu::WireType::fp16: return cpu_adam::GradType::fp16;
    case gpu::WireType::fp32: return cpu_adam::GradType::fp32;
  }
  base::fail(base::ErrorKind::bug, "unknown wire type {}", static_cast<int>(wire));
}

uint64_t state_hash(const cpu_adam::LeafHashes& h) {
  std::vector<uint64_t> all(h.lo.empty() ? h.p : h.lo);  // at most one of them is in the state
  all.insert(all.end(), h.m.begin(), h.m.end());
  all.insert(all.end(), h.v.begin(), h.v.end());
  return offload::extent_hash(all);
}

}  // namespace

UpdateOps::UpdateOps(const StepShape& shape, StepBuffers& buffers, const cpu_adam::CpuAdam& adam, DeviceUpdate* device,
                     const Options& options)
    : shape_(shape), buffers_(buffers), adam_(adam), device_(device), options_(options) {
  for (const auto& tile : shape.layout().tiles()) {
    first_leaf_.push_back(leaf_count_);
    spans_.push_back(tile.trainable ? spans_of(shape.layout(), tile) : std::vector<cpu_adam::GroupSpan>{});
    if (tile.trainable) leaf_count_ += static_cast<uint32_t>(shape.layout().leaves(tile));
  }
}

constexpr std::initializer_list<Ring> kOwn = {Ring::gradients, Ring::device_gradients}, kTied = {Ring::tied_gradients};

cpu_adam::Gradient UpdateOps::gradient(const offload::OpRun& run, std::initializer_list<Ring> rings) const {
  const offload::Use* use = find_use(run.op(), rings);
  if (use == nullptr) return {};
  return {buffers_.ring(use->ring, run.plan->buffer(*use, run.period)), gradient_type(shape_.options().wire)};
}

void UpdateOps::leaf_norms(const offload::Tile& tile, const cpu_adam::Gradient& grad, const cpu_adam::Gradient& tied, size_t count,
                           std::span<double> sums) const {
  on_device(tile) ? device_->squared_norms(grad, tied, count, sums) : adam_.squared_norms(grad, tied, count, sums);
}

void UpdateOps::norm(const offload::OpRun& run, Step& step) const {
  const auto tile = static_cast<uint32_t>(run.op().tile);
  const auto& place = shape_.layout().tiles()[tile];
  const auto sums = std::span(step.leaf_sums).subspan(first_leaf_[tile], shape_.layout().leaves(place));
  const cpu_adam::Gradient grad = gradient(run, kOwn), tied = gradient(run, kTied);
  leaf_norms(place, grad, tied, place.count, sums);
  if (step.nonfinite && step.nonfinite->tile < tile) return;
  const auto bad = std::find_if(sums.begin(), sums.end(), [](double sum) { return !std::isfinite(sum); });
  if (bad == sums.end()) return;
  const uint64_t begin = static_cast<uint64_t>(bad - sums.begin()) * offload::kLeafElements;
  const size_t count = std::min(offload::kLeafElements, place.count - begin);
  step.nonfinite = NonFinite{tile, begin + find_nonfinite(place, advance(grad, begin), advance(tied, begin), count)};
}

// By halves, with the norm that found the leaf: it reads gradients of every type, wherever they are.
size_t UpdateOps::find_nonfinite(const offload::Tile& tile, cpu_adam::Gradient grad, cpu_adam::Gradient tied, size_t count) const {
  size_t first = 0;
  while (count > 1) {
    const size_t half = count / 2;
    double sum = 0;
    leaf_norms(tile, advance(grad, first), advance(tied, first), half, std::span(&sum, 1));
    if (std::isfinite(sum)) {
      first += half;
      count -= half;
    } else {
      count = half;
    }
  }
  return first;
}

void UpdateOps::gate(Step& step) const {
  double sum = 0;
  for (const double leaf : step.leaf_sums) sum += leaf;
  step.grad_norm = std::sqrt(sum) / step.loss_scale.scale;
  step.skipped = !std::isfinite(step.grad_norm) || !std::isfinite(step.loss());
  // No scale cures a loss that is not finite.
  const bool answered = options_.scaler.enabled() && std::isfinite(step.loss()) && !options_.scaler.exhausted(step.loss_scale);
  if (step.skipped && !answered && !options_.skip_nonfinite) fail_nonfinite(step);
  step.clip = options_.clip > 0 ? std::min(1.0, options_.clip / (step.grad_norm + 1e-6)) : 1.0;
}

// Exactly where this rank holds the element, else by the leaf's sum, which all ranks have.
std::string UpdateOps::where_nonfinite(const Step& step) const {
  const auto& layout = shape_.layout();
  for (uint32_t t = 0; t < layout.tiles().size(); ++t) {
    const auto& tile = layout.tiles()[t];
    if (!tile.trainable) continue;
    const bool mine = step.nonfinite && step.nonfinite->tile == t;
    for (uint64_t leaf = 0; leaf < layout.leaves(tile); ++leaf) {
      if (std::isfinite(step.leaf_sums[first_leaf_[t] + leaf])) continue;
      const uint64_t begin = tile.first + (mine ? step.nonfinite->index : leaf * offload::kLeafElements);
      const uint64_t end = mine ? begin + 1 : std::min(begin + offload::kLeafElements, tile.first + tile.count);
      std::string names;
      for (const auto& tensor : layout.blocks()[tile.block].tensors) {
        if (!tensor.trainable || tensor.offset >= end || tensor.offset + tensor.count <= begin) continue;
        names += (names.empty() ? "" : ", ") + tensor.name;
        if (mine) names += fmt::format(", element {}", begin - tensor.offset);
      }
      return fmt::format("{}gradient of block {}, {}{}", mine ? "the " : "a ", tile.block, names, mine ? "" : fmt::format(" (in the shard of rank {})", tile.shard));
    }
  }
  return "the loss";
}

void UpdateOps::fail_nonfinite(const Step& step) const {
  const std::string where = where_nonfinite(step);
  std::string advice = "Lower the learning rate, look at the data of this step, or set run.on_nonfinite to \"skip\"";
  if (options_.scaler.enabled())
    advice = std::isfinite(step.loss())
                 ? fmt::format("The loss scale is at its least, fp16.min_loss_scale {}, and cannot fall further. ", step.loss_scale.scale) + advice
                 : "Activations beyond 65504 overflow in fp16, whatever the loss scale: try bf16.enabled. " + advice;
  base::fail(base::ErrorKind::numerics, "step {}: {} is not finite (loss {}, gradient norm {}); nothing of this step was kept. {}",
             step.number, where, step.loss(), step.grad_norm, advice);
}

void UpdateOps::update(const offload::OpRun& run, Step& step) const {
  const auto index = static_cast<uint32_t>(run.op().tile);
  const auto& layout = shape_.layout();
  const auto& tile = layout.tiles()[index];
  const auto buffer = [&](std::initializer_list<Ring> rings, std::byte* home) {
    for (const Ring ring : rings)
      if (const offload::Use* use = find_use(run.op(), ring)) return buffers_.ring(ring, run.plan->buffer(*use, run.period));
    return home;
  };
  std::byte* weights = buffer({Ring::weights_held, Ring::weights}, buffers_.weights_home(index));
  std::byte* state = buffer({Ring::state}, buffers_.state_home(index));
  SLUICE_CHECK(weights != nullptr && state != nullptr, run.plan->name(run.index));
  const cpu_adam::TileState arrays = tile_state(layout.schema(), tile, weights, state);
  cpu_adam::TileState shadow;
  if (run.op().shadow != offload::Shadow::none) {
    std::byte* saved = buffers_.shadow(index);
    shadow = tile_state(layout.schema(), tile, saved, saved + layout.weights_extent_bytes(tile));
  }
  if (run.op().shadow == offload::Shadow::restore) adam_.copy(shadow, arrays, tile.count);
  if (step.skipped) return;

  cpu_adam::LeafHashes hashes;
  cpu_adam::TileUpdate tile_update;
  tile_update.state = arrays;
  if (run.op().shadow == offload::Shadow::save) tile_update.saved = shadow;
  tile_update.count = tile.count;
  tile_update.grad = gradient(run, kOwn);
  tile_update.grad2 = gradient(run, kTied);
  tile_update.grad_scale = static_cast<float>(step.clip / step.loss_scale.scale);
  tile_update.spans = spans_[index];
  tile_update.groups = step.groups;
  const bool hash = options_.hash && !shape_.state_on_device(tile.block);  // what stays on the device is not written
  tile_update.hashes = hash ? &hashes : nullptr;
  on_device(tile) ? device_->update(tile_update) : adam_.update(tile_update);
  if (!hash) return;
  step.hashes[2 * index] = offload::extent_hash(hashes.weights);
  step.hashes[2 * index + 1] = state_hash(hashes);
}

}  // namespace sluice::engine
