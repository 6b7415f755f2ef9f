#include "offload/plan.h"

#include <algorithm>

#include "base/error.h"

namespace sluice::offload {
namespace {

using base::ErrorKind;
using base::fail;

const char* title(OpKind kind) {
  constexpr const char* names[] = {"ReadWeights", "ReadState", "CopyIn",       "Gather",       "GatherUpdated",
                                   "Forward",     "Loss",      "Backward",     "SaveBoundary", "LoadBoundary",
                                   "Reduce",      "CopyOut",   "Norm",         "Gate",         "Update",
                                   "WriteWeights", "WriteState", "Flush",      "Agree",        "Publish"};
  return names[static_cast<size_t>(kind)];
}

const char* to_string(Visit visit) {
  constexpr const char* names[] = {"", "forward", "loss", "backward", "update"};
  return names[static_cast<size_t>(visit)];
}

void number_acquisitions(Plan& plan) {
  std::array<std::vector<uint32_t>, kRings> number;  // old number -> new number
  std::array<uint32_t, kRings> count{};
  std::array<int, kRings> lane_of;
  lane_of.fill(-1);
  for (const Op& op : plan.ops)
    for (const Use& use : op.uses) {
      auto& n = number[static_cast<size_t>(use.ring)];
      if (n.size() <= use.acquisition) n.resize(use.acquisition + 1, UINT32_MAX);
    }
  for (size_t lane = 0; lane < kLanes; ++lane)
    for (uint32_t i : plan.order[lane])
      for (uint32_t a = 0; a < plan.ops[i].acquires; ++a) {
        const Use& use = plan.ops[i].uses[a];
        const auto r = static_cast<size_t>(use.ring);
        if (lane_of[r] >= 0 && lane_of[r] != static_cast<int>(lane))
          fail(ErrorKind::bug, "ring {} is acquired by two lanes; {} is in the second", to_string(use.ring),
               plan.name(i));
        lane_of[r] = static_cast<int>(lane);
        if (number[r][use.acquisition] != UINT32_MAX)
          fail(ErrorKind::bug, "{} acquires a buffer of ring {} that is acquired already", plan.name(i),
               to_string(use.ring));
        number[r][use.acquisition] = count[r]++;
      }
  for (uint32_t i = 0; i < plan.ops.size(); ++i)
    for (Use& use : plan.ops[i].uses) {
      if (plan.given(use.ring)) continue;
      const uint32_t n = number[static_cast<size_t>(use.ring)][use.acquisition];
      if (n == UINT32_MAX)
        fail(ErrorKind::bug, "{} uses a buffer of ring {} that nothing acquires", plan.name(i),
             to_string(use.ring));
      use.acquisition = n;
    }
  for (size_t r = 0; r < kRings; ++r)
    if (!plan.given(static_cast<Ring>(r))) plan.rings[r].acquisitions = count[r];
}

}  // namespace

const char* to_string(OpKind kind) {
  constexpr const char* names[] = {"read_weights",  "read_state",  "copy_in",  "gather",        "gather_updated",
                                   "forward",       "loss",        "backward", "save_boundary", "load_boundary",
                                   "reduce",        "copy_out",    "norm",     "gate",          "update",
                                   "write_weights", "write_state", "flush",    "agree",         "publish"};
  return names[static_cast<size_t>(kind)];
}

const char* to_string(Lane lane) {
  constexpr const char* names[] = {"disk_weights",     "disk_state", "disk_write_weights",
                                   "disk_write_state", "h2d",        "d2h",
                                   "comm",             "compute",    "update",
                                   "commit"};
  return names[static_cast<size_t>(lane)];
}

const char* to_string(Ring ring) {
  constexpr const char* names[] = {"weights_held",   "weights",      "state",      "gradients",
                                   "device_gradients", "tied_gradients", "device_layer", "device_big", "device_kept",
                                   "grad_layer",     "grad_big",     "shard_layer", "shard_big",
                                   "wire_layer",     "wire_big",     "boundary_even", "boundary_odd",
                                   "boundary_back"};
  return names[static_cast<size_t>(ring)];
}

const char* to_string(Placement placement) {
  constexpr const char* names[] = {"none", "forward", "backward", "spread"};
  return names[static_cast<size_t>(placement)];
}

const char* to_string(Tier tier) {
  constexpr const char* names[] = {"none", "cpu", "nvme"};
  return names[static_cast<size_t>(tier)];
}

std::string Plan::name(uint32_t index) const {
  const Op& op = ops[index];
  std::string text = title(op.kind);
  const int32_t part = op.tile_in_block >= 0 ? op.tile_in_block : op.tile >= 0 ? op.tile : op.micro;
  if (op.block >= 0) text += fmt::format(" {}", op.block);
  if (part >= 0) text += fmt::format("{}{}", op.block >= 0 ? "." : " ", part);
  if ((op.kind == OpKind::read_weights || op.kind == OpKind::copy_in || op.kind == OpKind::gather) && op.visit != Visit::none)
    text += fmt::format(" {}", to_string(op.visit));
  if (op.tied_part) text += " tied";
  return text;
}

const Use* find_use(const Op& op, Ring ring) {
  for (const Use& use : op.uses)
    if (use.ring == ring) return &use;
  return nullptr;
}

const Use* find_use(const Op& op, std::initializer_list<Ring> rings) {
  for (Ring ring : rings)
    if (const Use* use = find_use(op, ring)) return use;
  return nullptr;
}

void order_plan(Plan& plan) {
  for (auto& lane : plan.order) lane.clear();
  for (uint32_t i = 0; i < plan.ops.size(); ++i)
    plan.order[static_cast<size_t>(plan.ops[i].lane)].push_back(i);
  for (auto& lane : plan.order) {
    std::sort(lane.begin(), lane.end(),
              [&](uint32_t a, uint32_t b) { return plan.ops[a].key < plan.ops[b].key; });
    for (size_t n = 1; n < lane.size(); ++n)
      if (!(plan.ops[lane[n - 1]].key < plan.ops[lane[n]].key))
        fail(ErrorKind::bug, "{} and {} have the same key in lane {}", plan.name(lane[n - 1]),
             plan.name(lane[n]), to_string(plan.ops[lane[n]].lane));
  }
  number_acquisitions(plan);
}

}  // namespace sluice::offload
