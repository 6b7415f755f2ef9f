// Settle and redo against the train plan that they finish.
#include "offload/plan_follow_up.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "tests/offload/random_plans.h"

namespace sluice::offload {
namespace {

struct Follow {
  Layout layout;
  PlanOptions options;
  Plan train, settle, redo;

  Follow()
      : layout(random_model(), Schema::bf16, kSmallTile),
        options(random_options()),
        train(build_train_plan(layout, options)),
        settle(build_settle_plan(layout, options, train)),
        redo(build_redo_plan(layout, options, train)) {}
};

std::map<int32_t, uint32_t> by_tile(const Plan& plan, OpKind kind) {
  std::map<int32_t, uint32_t> found;
  for (uint32_t i = 0; i < plan.ops.size(); ++i)
    if (plan.ops[i].kind == kind) RC_ASSERT(found.emplace(plan.ops[i].tile, i).second);
  return found;
}

RC_GTEST_PROP(FollowUp, EveryUpdateIsDeferredOrGuessedOrAfterTheGate, ()) {
  const Follow f;
  const bool guesses = offload::guesses(f.options.placement);
  const auto trained = by_tile(f.train, OpKind::update), settled = by_tile(f.settle, OpKind::update), redone = by_tile(f.redo, OpKind::update);
  for (const auto& [tile, op] : trained) {
    const bool deferred = f.train.ops[op].previous_step;
    RC_ASSERT(settled.contains(tile) == deferred);
    RC_ASSERT(redone.contains(tile) == (guesses && !deferred));
  }
  RC_ASSERT(settled.size() + redone.size() <= trained.size());
}

RC_GTEST_PROP(FollowUp, PlansPassTheCheckAndFitTheRingsOfTraining, ()) {
  const Follow f;
  for (const Plan* plan : {&f.settle, &f.redo}) {
    if (plan->ops.empty()) continue;
    check_plan(*plan);
    for (const Op& op : plan->ops) RC_ASSERT(op.previous_step);
    for (size_t r = 0; r < kRings; ++r) RC_ASSERT(plan->rings[r].size <= std::max(1u, f.train.rings[r].size));
  }
}

RC_GTEST_PROP(FollowUp, GradientsAreThoseThatThePeriodBeforeHasLeft, ()) {
  const Follow f;
  const uint64_t period = *rc::gen::inRange(1, 1000);
  for (const auto& [tile, op] : by_tile(f.train, OpKind::norm))
    for (const Plan* plan : {&f.settle, &f.redo}) {
      const auto updates = by_tile(*plan, OpKind::update);
      if (!updates.contains(tile)) continue;
      for (const Ring ring : {Ring::gradients, Ring::tied_gradients}) {
        const Use* filled = find_use(f.train.ops[op], ring);
        const Use* used = find_use(plan->ops[updates.at(tile)], ring);
        RC_ASSERT((filled == nullptr) == (used == nullptr));
        if (used != nullptr) RC_ASSERT(plan->buffer(*used, period + 1) == f.train.buffer(*filled, period));
      }
    }
}

// What a commit publishes is written; the step is committed once, by the train plan, a redo or a settle.
RC_GTEST_PROP(FollowUp, WhatTrainingWritesIsWritten, ()) {
  const Follow f;
  for (const Plan* plan : {&f.settle, &f.redo}) {
    const auto updates = by_tile(*plan, OpKind::update);
    for (const OpKind kind : {OpKind::write_weights, OpKind::write_state}) {
      const bool wanted = kind == OpKind::write_weights ? f.options.write_weights : f.options.write_state;
      RC_ASSERT(by_tile(*plan, kind).size() == (wanted ? updates.size() : 0));
    }
    RC_ASSERT(by_tile(*plan, OpKind::copy_in).size() == (f.options.weights == Tier::none ? updates.size() : 0));
  }
  const bool late = !f.settle.ops.empty();
  RC_ASSERT(by_tile(f.settle, OpKind::publish).size() == (f.options.commit && late ? 1u : 0u));
  RC_ASSERT(by_tile(f.redo, OpKind::publish).size() == (f.options.commit && !late && !f.redo.ops.empty() ? 1u : 0u));
}

// The spare of what lives in memory is on disk: a redo fetches both parts of each tile, wherever they live.
RC_GTEST_PROP(FollowUp, ARedoStartsFromTheGenerationBefore, ()) {
  const Follow f;
  const auto updates = by_tile(f.redo, OpKind::update);
  for (const OpKind kind : {OpKind::read_weights, OpKind::read_state}) {
    const auto reads = by_tile(f.redo, kind);
    for (const auto& [tile, update] : updates)  // with a shadow nothing is read
      RC_ASSERT(reads.contains(tile) == (f.redo.ops[update].shadow == Shadow::none));
    for (const auto& [tile, read] : reads) {
      const auto& deps = f.redo.ops[updates.at(tile)].deps;
      RC_ASSERT(std::any_of(deps.begin(), deps.end(), [&, r = read](const Dep& dep) { return dep.op == r; }));
    }
  }
  for (const auto& [tile, read] : by_tile(f.settle, OpKind::read_state)) RC_ASSERT(find_use(f.settle.ops[read], Ring::state) != nullptr);
}

}  // namespace
}  // namespace sluice::offload
