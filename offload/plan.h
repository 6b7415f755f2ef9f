// A step as data: one period of a cycle of operations over lanes, with dependencies and buffer rings.
// Rules of order, lifetime and generation: docs/design.md, "The step as a plan".
#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace sluice::offload {

enum class OpKind : uint8_t {
  read_weights, read_state, copy_in, gather, gather_updated, forward, loss, backward, save_boundary, load_boundary, reduce, copy_out,
  norm, gate, update, write_weights, write_state, flush, agree, publish,
};
enum class Lane : uint8_t {
  disk_weights, disk_state, disk_write_weights, disk_write_state, h2d, d2h, comm, compute, update, commit,
};
inline constexpr size_t kLanes = 10;
const char* to_string(OpKind kind);
const char* to_string(Lane lane);
constexpr bool is_device_lane(Lane lane) { return lane >= Lane::h2d && lane <= Lane::compute; }
constexpr bool is_disk_lane(Lane lane) { return lane <= Lane::disk_write_state; }

// Why the weights of a block are visited.
enum class Visit : uint8_t { none, forward, loss, backward, update };

// One ring per (pool, lifetime class).
enum class Ring : uint8_t {
  weights_held,   // host weights tiles that stay from the backward's read until their write
  weights,        // host weights tiles released by their copy or write
  state,          // host state tiles
  gradients,      // wire gradient tiles, on the host
  device_gradients,  // the same of resident blocks, on the device
  tied_gradients, // of the tied head's part, kept until the embedding's update; where the embedding's own are
  device_layer,   // device weight slots for layers
  device_big,     // device weight slot for embedding, then head
  device_kept,    // device weight slots of kept blocks (keep_weights, keep_graphs)
  grad_layer,     // device fp32 gradients of a layer
  grad_big,       // device fp32 gradients of embedding or head
  shard_layer,    // device: this rank's shard of a layer's weights, before they are gathered
  shard_big,      // the same of embedding or head
  wire_layer,     // device: a layer's gradient in the wire type, reduced over the ranks in place
  wire_big,       // the same of embedding or head
  boundary_even,  // device: inputs of blocks of even number, where boundaries live on the host
  boundary_odd,
  boundary_back,  // device: a block's input, back for its backward
};
inline constexpr size_t kRings = 18;
const char* to_string(Ring ring);

// An edge from `op` of `periods` periods ago (0: this period).
struct Dep {
  uint32_t op;
  uint32_t periods;
};

// The operation works on the buffer of one acquisition of a ring, made `periods` periods ago. Looked up by ring
// with find_use. What an operation uses, where the tier has a ring (a home in RAM or on the device has none):
// clang-format off
//   read_weights   weights | weights_held (acquires)
//   read_state     state (acquires)
//   copy_in        device_layer | device_big | device_kept, or shard_layer | shard_big where shards are gathered (the first tile
//                  of a visit acquires); weights | weights_held
//   gather         the block's device slot (acquires); shard_layer | shard_big
//   forward        the block's device slot; boundaries on the host: the next block's input (acquires) and its own
//   loss           device_big: the untied head, or the tied embedding; device_layer: the tied head's norm;
//                  grad_big: of the untied head, or the head's part of the tied matrix;
//                  grad_layer: of the tied head's norm (the first micro-batch acquires the gradients)
//   backward       the block's device slot (none for the embedding);
//                  grad_layer | grad_big (the first micro-batch acquires)
//   save_boundary  boundary_even | boundary_odd
//   load_boundary  boundary_back (acquires); used by backward
//   reduce         wire_layer | wire_big (acquires); grad_layer | grad_big
//   copy_out       gradients | device_gradients | tied_gradients (acquires); grad_layer | grad_big, or of several ranks wire_layer | wire_big
//   norm           gradients | device_gradients; tied_gradients
//   gate           every gradient tile that a wrong guess would need again: alone in using a ring many times
//   update         weights | weights_held; state; gradients | device_gradients; tied_gradients
//   write_weights  weights | weights_held
//   write_state    state
// clang-format on
struct Use {
  Ring ring;
  uint32_t acquisition;  // number within the period, in lane order of the acquiring lane
  uint32_t periods;
};

// Total order of all operations; every lane is this order filtered.
struct Key {
  int32_t slot;   // compute slot the operation serves or follows
  float phase;
  float tile;
  int32_t sub = 0;
  auto operator<=>(const Key&) const = default;
};

// A copy of a tile's state in RAM, from before an update on a guess: the update makes it, or begins from it because the guess was wrong.
enum class Shadow : uint8_t { none, save, restore };

struct Op {
  OpKind kind;
  Lane lane;
  Visit visit = Visit::none;
  int32_t block = -1;
  int32_t micro = -1;   // forward, loss, backward, save and load of a boundary: micro-batch
  int32_t tile = -1;    // index into Layout::tiles() (global), or -1
  int32_t tile_in_block = -1;  // trainable tiles first, then frozen ones
  bool tied_part = false;  // copy_out, reduce: the head's contribution to the tied matrix (its Norm takes both parts)
  bool last_micro = false; // last micro-batch of its block: gradients are complete, the device slot is free
  bool previous_step = false;  // part of the step of the period before: a deferred update, what belongs to it, a late commit
  uint64_t bytes = 0;      // moved on its lane; 0 for compute, and for copies that do not leave the device
  bool on_device = false;  // copy_out, norm, update, copy_in of a tile whose state and gradient are device memory
  Shadow shadow = Shadow::none;  // update
  Key key;
  std::vector<Dep> deps;
  std::vector<Use> uses;   // acquisitions first; at most one use of a ring (but for the gate)
  uint8_t acquires = 0;    // uses[0 .. acquires) are acquired by this operation
  uint8_t collectives = 0; // comm lane: that it is made of, one after the other
};

struct RingInfo {
  uint32_t acquisitions = 0;  // per period
  uint32_t size = 0;          // buffers; 0: ring unused
};

enum class Placement : uint8_t { none, forward, backward, spread };
// Are updates made before the gradient norm is known?
constexpr bool guesses(Placement p) { return p == Placement::backward || p == Placement::spread; }
enum class Tier : uint8_t { none, cpu, nvme };
const char* to_string(Placement placement);
const char* to_string(Tier tier);

struct Plan {
  std::vector<Op> ops;
  std::array<std::vector<uint32_t>, kLanes> order;  // op indices of each lane, in key order
  std::array<RingInfo, kRings> rings;
  std::array<uint32_t, kLanes> widths;
  // Runs for one period, right after a period of a train plan whose gradients it takes over (plan_follow_up.h).
  bool follow_up = false;

  // The buffer of a use in period k: rings rotate over the periods.
  uint32_t buffer(const Use& use, uint64_t period) const {
    const RingInfo& r = rings[static_cast<size_t>(use.ring)];
    return static_cast<uint32_t>(((period - use.periods) * r.acquisitions + use.acquisition) % r.size);
  }
  // Filled by the period before, and numbered as that plan numbers it: no operation of this plan acquires it.
  bool given(Ring ring) const { return follow_up && ring >= Ring::gradients && ring <= Ring::tied_gradients; }
  std::string name(uint32_t op) const;  // "CopyOut 3.1": kind, block, tile in block or micro-batch
};

// Null when the operation does not use the ring.
const Use* find_use(const Op& op, Ring ring);
// Of whichever of the rings it uses, in the order given.
const Use* find_use(const Op& op, std::initializer_list<Ring> rings);

// Fills `order` from the keys and numbers the acquisitions of each ring in lane order (whatever numbers they had).
// Error(bug): two operations of a lane with one key, or a ring acquired by two lanes.
void order_plan(Plan& plan);

// Throws Error(bug) for a malformed plan, Error(config) naming the ring and the size that would do for one that cannot run.
// Checks: offset-0 acyclicity over data + lane order + buffer reuse; no edge to a later period; a path from each write to each
// read of the same bytes; reads of a generation before its overwrite; every use inside its buffer's lifetime.
void check_plan(const Plan& plan);

}  // namespace sluice::offload
