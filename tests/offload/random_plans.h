// Random models and options for properties of plans (RapidCheck).
#pragma once
#include <fmt/format.h>
#include <rapidcheck.h>

#include "offload/plan_builder.h"
#include "tests/offload/plan_models.h"

namespace sluice::offload {

// Blocks of one to three tensors, each trainable or frozen; at least one is trainable.
inline ModelDesc random_model(int most_layers = 5, int64_t most_tiles = 4) {
  ModelDesc m;
  const int layers = *rc::gen::inRange(1, most_layers + 1);
  m.tied = *rc::gen::arbitrary<bool>();
  const int frozen = *rc::gen::element(0, 0, 1, 3);  // in 4: nothing, a quarter or most of the tensors
  for (int b = 0; b < layers + 2; ++b) {
    BlockDesc block{b == 0 ? BlockKind::embedding : b == layers + 1 ? BlockKind::head : BlockKind::layer, {}};
    const int tensors = *rc::gen::inRange(1, 4);
    for (int t = 0; t < tensors; ++t)
      block.tensors.push_back({fmt::format("t{}.{}", b, t),
                               {*rc::gen::inRange<int64_t>(1, most_tiles * static_cast<int64_t>(kSmallTile))},
                               *rc::gen::inRange(0, 4) >= frozen});
    m.blocks.push_back(block);
  }
  bool any = false;
  for (const auto& block : m.blocks)
    for (const auto& t : block.tensors) any |= t.trainable;
  if (!any) m.blocks[static_cast<size_t>(*rc::gen::inRange(0, layers + 2))].tensors[0].trainable = true;
  return m;
}

// Of one of `world` ranks.
inline PlanOptions random_options(uint32_t world = 1) {
  using rc::gen::arbitrary;
  using rc::gen::element;
  PlanOptions o;
  o.zero_stage = world == 1 ? 3 : *rc::gen::inRange(0u, 4u);
  o.rank = *rc::gen::inRange(0u, world);
  o.weights = *element(Tier::none, Tier::cpu, Tier::nvme);
  if (o.zero_stage < 3) o.weights = o.zero_stage == 0 ? *element(Tier::none, Tier::cpu) : Tier::none;
  o.state =
      o.weights == Tier::none ? *element(Tier::none, Tier::cpu, Tier::nvme) : *element(Tier::cpu, Tier::nvme);
  if (o.zero_stage == 0 && o.state == Tier::nvme) o.state = Tier::cpu;
  o.commit = o.state != Tier::none && *arbitrary<bool>();
  o.write_weights = o.commit || o.weights == Tier::nvme || (o.weights == Tier::none && o.state == Tier::nvme);
  o.write_state = o.commit || o.state == Tier::nvme;
  o.placement = *element(Placement::none, Placement::forward, Placement::backward, Placement::spread);
  o.spread = *element(0.0, 0.1, 0.25, 0.7, 1.0);
  o.micro_batches = *rc::gen::inRange(1u, 5u);
  o.keep_weights = *element(0u, 0u, 1u, 3u, 99u);
  o.keep_graphs = *element(0u, 0u, 1u, 99u);
  o.pinned_tiles = *element(0u, 0u, 1u, 3u, 8u, 1000u);
  o.first_shadow = *element(UINT32_MAX, 0u, 3u, 8u);
  o.pools.device_slots = *rc::gen::inRange(1u, 4u);
  o.host_boundary_bytes = *element(0u, 0u, 4096u);
  return o;
}

}  // namespace sluice::offload
