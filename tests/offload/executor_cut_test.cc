#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "executor_harness.h"
#include "offload/executor.h"
#include "offload/plan_builder.h"
#include "plan_models.h"

namespace sluice::offload {
namespace {

// A run that is cut at a gate: what was issued of later periods comes to an end, nothing more is issued, and the next run begins there.
class CuttingHandlers final : public OpHandlers {
 public:
  explicit CuttingHandlers(const Plan& plan) : done_(plan.ops.size()) {}
  bool begin_period(uint64_t period) override { return period < kEnd; }
  void enqueue(const OpRun& run, gpu::Stream& stream) override {
    if (is_compute(run)) computed_ = std::max(computed_, run.period);
    stream.enqueue([] {});
  }
  std::optional<DiskRequest> request(const OpRun&) override { return std::nullopt; }
  void run(const OpRun& run) override {
    if (run.op().kind == OpKind::gate && run.period == cut) executor->end_after(cut);
  }
  void done(const OpRun& run) override { ++done_[run.index][run.period]; }

  static bool is_compute(const OpRun& run) { return run.op().lane == Lane::compute; }
  uint64_t times_done(uint32_t op, uint64_t period) { return done_[op][period]; }
  uint64_t last_computed() const { return computed_; }

  static constexpr uint64_t kEnd = 9;
  uint64_t cut = 0;
  Executor* executor = nullptr;

 private:
  std::vector<std::map<uint64_t, uint64_t>> done_;
  uint64_t computed_ = 0;
};

TEST(Executor, EndsWithThePeriodOfAWrongGuessAndGoesOnAfterIt) {
  const Layout layout = small_layout(3, 2, 0, 3);
  for (const Placement placement : {Placement::none, Placement::forward, Placement::backward, Placement::spread}) {
    PlanOptions options;
    options.placement = placement;
    const Plan plan = build_train_plan(layout, options);
    CuttingHandlers handlers(plan);
    FakeMachine machine(plan, handlers);
    handlers.executor = &machine.executor;
    uint64_t next = 2;
    for (const uint64_t cut : {2, 3, 6}) {
      handlers.cut = cut;
      EXPECT_EQ(machine.executor.run(next), cut + 1 - next);
      EXPECT_EQ(handlers.last_computed(), cut);  // the forward of the next period waits for the gate
      for (uint64_t period = next; period <= cut; ++period)
        for (uint32_t op = 0; op < plan.ops.size(); ++op) EXPECT_GE(handlers.times_done(op, period), 1u) << plan.name(op);
      next = cut + 1;
    }
    const ExecutorStats stats = machine.executor.take_stats();
    for (const Lane lane : {Lane::disk_weights, Lane::disk_state, Lane::disk_write_weights, Lane::disk_write_state})
      EXPECT_EQ(stats.bytes[static_cast<size_t>(lane)], 0u) << to_string(lane);  // nothing was transferred
    EXPECT_GT(stats.bytes[static_cast<size_t>(Lane::h2d)], 0u);
    handlers.cut = CuttingHandlers::kEnd;
    EXPECT_EQ(machine.executor.run(next), CuttingHandlers::kEnd - next);
    for (uint32_t op = 0; op < plan.ops.size(); ++op)
      EXPECT_EQ(handlers.times_done(op, 8), 1u) << plan.name(op);
  }
}

}  // namespace
}  // namespace sluice::offload
