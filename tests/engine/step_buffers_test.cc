// The arenas of random runs: what the memory table says is what they take, to the byte, and nothing lies in two of them.
#include "engine/step_buffers.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "engine/run_shape.h"
#include "engine/step_runner.h"
#include "gpu/emulated_device.h"
#include "tests/offload/random_plans.h"

namespace sluice::engine {
namespace {

using offload::Ring;
using offload::Tier;
using rc::gen::arbitrary;
using rc::gen::element;
using rc::gen::inRange;

constexpr int64_t kHidden = 64;

TrainerOptions random_run(const offload::Layout& layout) {
  TrainerOptions o;
  o.plan = offload::random_options(layout.world());
  if (layout.world() == 1 && o.plan.weights == Tier::none && *arbitrary<bool>()) o.plan.state = Tier::none;
  o.plan.keep_graphs = *element(0u, 1u, UINT32_MAX);  // "all"
  o.plan.pools.state = *element(0u, 8u);
  o.plan.first_shadow = UINT32_MAX;  // this and the next follow from other options
  o.plan.host_boundary_bytes = 0;
  o.plan.resident_blocks = *element(0u, 0u, 1u, 2u);
  const bool on_device = o.plan.state == Tier::none || o.plan.resident_blocks > 0;
  o.store.durable = *element(offload::Durable::step, offload::Durable::checkpoint);
  if (on_device || !o.plan.commit) o.store.durable = offload::Durable::checkpoint;
  o.accumulation = *inRange(1u, 4u);
  o.micro_batch = *inRange(1u, 3u);
  o.sequence = *element(8u, 33u);
  o.host_boundaries = *arbitrary<bool>();
  o.wire = *element(gpu::WireType::bf16, gpu::WireType::fp32);
  o.pinned = *element(0ull, 0ull, 1ull << 20, 1ull << 40);
  o.shadow = *element(0ull, 1ull << 21, 1ull << 40);
  if (*arbitrary<bool>()) o.guess_limit = .5;
  return o;
}

struct Case {
  offload::Layout layout{offload::random_model(/*most_layers=*/3, /*most_tiles=*/2), *element(offload::Schema::bf16, offload::Schema::fp32),
                         offload::kSmallTile, *element(1u, 1u, 2u)};
  TrainerOptions options = random_run(layout);
  StepShape shape = shape_of_run();

  // As the trainer does.
  StepShape shape_of_run() const {
    const offload::PlanOptions plan = train_plan_options(options, layout, kHidden);
    const TrainPlans plans(layout, plan, options.guess_limit.has_value());
    const offload::Plan eval = build_eval_plan(layout, plan);
    std::vector<const offload::Plan*> all = plans.all();
    all.push_back(&eval);
    return {layout, step_options(options, layout, kHidden, plan), ring_sizes(all)};
  }
  uint64_t host() const { return total(shape.rows(), "host"); }
  uint64_t device() const { return total(shape.rows(), "gpu") - shape.options().comm_staging; }  // which the communicator takes
};

struct Arenas {
  Arenas(const StepShape& shape, uint64_t device_bytes, uint64_t host_bytes)
      : device(gpu::make_plain_device({.memory = device_bytes})),
        host("host", host_bytes, base::ErrorKind::host_memory),
        buffers(shape, *device, host) {}
  std::unique_ptr<gpu::Device> device;
  base::Budget host;
  StepBuffers buffers;
};

struct Piece {
  std::string name;
  const std::byte* begin;
  uint64_t bytes;
  const std::byte* end() const { return begin + bytes; }
};

class Pieces {
 public:
  void add(std::string name, const void* begin, uint64_t bytes) {
    if (bytes > 0) pieces_.push_back({std::move(name), static_cast<const std::byte*>(begin), bytes});
  }
  void add(std::string name, const at::Tensor& tensor) { add(std::move(name), tensor.data_ptr(), tensor.nbytes()); }

  // The first two that share a byte; empty: none do.
  std::string overlap() {
    std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    for (size_t i = 1; i < pieces_.size(); ++i)
      if (pieces_[i - 1].end() > pieces_[i].begin) return pieces_[i - 1].name + " and " + pieces_[i].name;
    return "";
  }
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const Piece& piece : pieces_) sum += piece.bytes;
    return sum;
  }

 private:
  std::vector<Piece> pieces_;
};

void add_rings(Pieces& pieces, const StepShape& shape, const StepBuffers& buffers) {
  constexpr Ring kTensors[] = {Ring::device_layer, Ring::device_kept,   Ring::device_big,  Ring::grad_layer,
                               Ring::grad_big,     Ring::boundary_even, Ring::boundary_odd, Ring::boundary_back};
  for (size_t r = 0; r < offload::kRings; ++r) {
    const auto ring = static_cast<Ring>(r);
    const bool tensors = std::ranges::find(kTensors, ring) != std::end(kTensors);
    for (uint32_t i = 0; i < shape.ring_size(ring); ++i) {
      const std::string name = fmt::format("{} {}", offload::to_string(ring), i);
      if (tensors) {
        pieces.add(name, buffers.whole(ring, i));
      } else {
        pieces.add(name, buffers.ring(ring, i), shape.ring_buffer_bytes(ring));
      }
    }
  }
}

void add_homes(Pieces& pieces, const StepShape& shape, const StepBuffers& buffers) {
  const offload::Layout& layout = shape.layout();
  for (uint32_t b = 0; b < layout.blocks().size(); ++b)
    if (shape.resident(b)) pieces.add(fmt::format("resident {}", b), buffers.resident(b));
  for (uint32_t t = 0; t < layout.tiles().size(); ++t) {
    const offload::Tile& tile = layout.tiles()[t];
    const uint64_t weights = layout.weights_extent_bytes(tile), state = layout.state_extent_bytes(tile);
    RC_ASSERT((buffers.weights_home(t) != nullptr) == shape.has_weights_home(t));
    RC_ASSERT((buffers.state_home(t) != nullptr) == shape.has_state_home(t));
    if (shape.has_weights_home(t) && shape.state_on_device(tile.block)) {  // the resident weights are the home
      const auto* block = static_cast<const std::byte*>(buffers.resident(tile.block).data_ptr());
      RC_ASSERT(buffers.weights_home(t) >= block);
      RC_ASSERT(buffers.weights_home(t) + weights <= block + buffers.resident(tile.block).nbytes());
    } else if (shape.has_weights_home(t)) {
      pieces.add(fmt::format("weights of tile {}", t), buffers.weights_home(t), weights);
    }
    if (shape.has_state_home(t)) pieces.add(fmt::format("state of tile {}", t), buffers.state_home(t), state);
    if (shape.has_shadow(t)) pieces.add(fmt::format("shadow of tile {}", t), buffers.shadow(t), weights + state);
  }
}

void add_boundaries(Pieces& pieces, const StepShape& shape, const StepBuffers& buffers) {
  const auto head = static_cast<uint32_t>(shape.layout().blocks().size() - 1);
  for (uint32_t m = 0; m < shape.options().micro_batches; ++m) {
    for (uint32_t b = 1; b <= head; ++b) {
      if (shape.stays_on_device(b)) {
        pieces.add(fmt::format("input {} of {}", m, b), buffers.boundary(b, m));
      } else if (b < head) {
        pieces.add(fmt::format("host input {} of {}", m, b), buffers.host_boundary(b, m), shape.boundary_bytes());
      }
    }
    pieces.add(fmt::format("gradient {}", m), buffers.boundary_gradient(m));
    pieces.add(fmt::format("tokens {}", m), buffers.tokens(m));
    pieces.add(fmt::format("loss {}", m), buffers.loss(m));
    for (uint64_t period = 0; period < kPeriodsAtWork; ++period) {
      pieces.add(fmt::format("host tokens {} of {}", m, period), buffers.host_tokens(period, m), shape.token_bytes());
      pieces.add(fmt::format("host loss {} of {}", m, period), buffers.host_loss(period, m), sizeof(double));
    }
  }
  pieces.add("leaf sums", buffers.leaf_sums(), shape.leaf_sum_bytes());
  pieces.add("host leaf sums", buffers.host_leaf_sums(), shape.leaf_sum_bytes());
}

RC_GTEST_PROP(StepBuffersProperty, NoTwoBuffersOverlap, ()) {
  const Case c;
  const Arenas arenas(c.shape, c.device(), c.host());
  Pieces pieces;
  add_rings(pieces, c.shape, arenas.buffers);
  add_homes(pieces, c.shape, arenas.buffers);
  add_boundaries(pieces, c.shape, arenas.buffers);
  RC_ASSERT(pieces.overlap() == "");
  RC_ASSERT(pieces.bytes() <= c.device() + c.host());
}

// The budgets of a run are checked against the rows before anything is allocated; so they must be right in both directions.
RC_GTEST_PROP(StepBuffersProperty, ArenasTakeWhatTheRowsSay, ()) {
  const Case c;
  {
    const Arenas arenas(c.shape, c.device(), c.host());
    RC_ASSERT(arenas.device->budget().used() == c.device());
    RC_ASSERT(arenas.host.used() == c.host());
  }
  const auto refused = [&](uint64_t device, uint64_t host) {
    try {
      const Arenas arenas(c.shape, device, host);
      return base::ErrorKind::bug;
    } catch (const base::Error& error) {
      return error.kind();
    }
  };
  RC_ASSERT(refused(c.device() - 1, c.host()) == base::ErrorKind::device_memory);
  RC_ASSERT(refused(c.device(), c.host() - 1) == base::ErrorKind::host_memory);
}

}  // namespace
}  // namespace sluice::engine
