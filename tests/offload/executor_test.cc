#include "offload/executor.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>

#include "executor_harness.h"
#include "offload/plan_builder.h"
#include "plan_models.h"
#include "smallest_rings.h"

namespace sluice::offload {
namespace {

using base::Error;
using base::ErrorKind;

// Any plan that can run, with rings of the smallest size that lets it (plus `slack`).
Plan random_plan(uint32_t ops, uint32_t seed, uint32_t slack) {
  std::mt19937 random(seed);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  Plan plan = empty_plan();
  for (auto& width : plan.widths) width = 1 + below(4);
  const uint32_t lanes = 1 + below(kLanes);
  for (uint32_t i = 0; i < ops; ++i) {
    std::vector<Dep> deps;
    for (uint32_t d = below(4); d > 0; --d) {
      const uint32_t periods = i == 0 ? 1 + below(3) : below(3) == 0 ? 1 + below(3) : 0;
      deps.push_back({below(periods == 0 ? i : ops), periods});
    }
    add(plan, static_cast<Lane>(below(lanes)), std::move(deps));
  }
  for (uint32_t r = 0; r < kRings; ++r) {
    const auto lane = static_cast<Lane>(below(lanes));
    for (uint32_t i = 0; i < ops; ++i) {
      if (plan.ops[i].lane != lane || below(2) == 0) continue;
      std::vector<Dep> users{{i, 0}};
      for (uint32_t n = below(4); n > 0; --n) {
        const uint32_t periods = below(4) == 0 ? 1 + below(2) : 0;
        const uint32_t op = periods == 0 ? i + below(ops - i) : below(ops);
        if (op == i && periods == 0) continue;
        users.push_back({op, periods});
        plan.ops[op].deps.push_back({i, periods});  // a user follows the acquisition
      }
      use(plan, static_cast<Ring>(r), users);
    }
  }
  order_plan(plan);
  for (RingInfo& ring : plan.rings) ring.size = 4 * ops;
  for (RingInfo& ring : plan.rings) {
    for (ring.size = 1; !can_run(plan);) ++ring.size;
    ring.size += slack;
  }
  return plan;
}

std::string joined(const std::vector<std::string>& notes) {
  return std::accumulate(notes.begin(), notes.end(), std::string(), [](auto a, auto& b) { return a + b + "\n"; });
}

// Runs the plan; every operation of every period must have run once, and no promise been broken.
void expect_runs(const Plan& plan, const FakeOptions& options) {
  FakeHandlers handlers(plan, options);
  FakeMachine machine(plan, handlers);
  ASSERT_EQ(machine.executor.run(options.first), options.periods);
  EXPECT_EQ(handlers.watch.done(), plan.ops.size() * options.periods);
  EXPECT_EQ(joined(handlers.watch.notes()), "");
}

// A small plan with every lane: read, copy in, compute, copy out, update, write, commit.
Plan pipeline(uint32_t tiles) {
  Plan plan = empty_plan();
  std::vector<Dep> writes;
  const uint32_t gate = tiles * 8;
  for (uint32_t t = 0; t < tiles; ++t) {
    const uint32_t base = t * 8;
    add(plan, Lane::disk_weights, {{base + 6, 1}});
    add(plan, Lane::h2d, {{base, 0}});
    add(plan, Lane::compute, {{base + 1, 0}});
    add(plan, Lane::d2h, {{base + 2, 0}});
    add(plan, Lane::disk_state);
    add(plan, Lane::update, {{base + 3, 0}, {base + 4, 0}, {gate, 1}});
    add(plan, Lane::disk_write_weights, {{base + 5, 0}});
    add(plan, Lane::disk_write_state, {{base + 5, 0}});
    writes.push_back({base + 6, 0});
    writes.push_back({base + 7, 0});
    use(plan, Ring::weights, {{base, 0}, {base + 1, 0}});
    use(plan, Ring::device_layer, {{base + 1, 0}, {base + 2, 0}});
    use(plan, Ring::grad_layer, {{base + 2, 0}, {base + 3, 0}});
    use(plan, Ring::gradients, {{base + 3, 0}, {base + 5, 0}});
    use(plan, Ring::state, {{base + 4, 0}, {base + 5, 0}, {base + 6, 0}, {base + 7, 0}});
  }
  add(plan, Lane::commit, writes);
  order_plan(plan);
  for (RingInfo& ring : plan.rings) ring.size = 1;
  return plan;
}

RC_GTEST_PROP(ExecutorProperty, RandomPlansRunInOrderAtTheSmallestPools, ()) {
  const auto ops = *rc::gen::inRange<uint32_t>(1, 30);
  const Plan plan = random_plan(ops, *rc::gen::arbitrary<uint32_t>(), *rc::gen::inRange<uint32_t>(0, 3));
  FakeOptions options{.first = *rc::gen::inRange<uint64_t>(0, 5), .periods = *rc::gen::inRange<uint64_t>(0, 6)};
  options.seed = *rc::gen::arbitrary<uint32_t>();
  options.jitter_us = *rc::gen::element(0, 60);
  options.skip_disk = *rc::gen::inRange<uint32_t>(0, 4);
  FakeHandlers handlers(plan, options);
  FakeMachine machine(plan, handlers);
  RC_ASSERT(machine.executor.run(options.first) == options.periods);
  RC_ASSERT(handlers.watch.done() == plan.ops.size() * options.periods);
  RC_ASSERT(joined(handlers.watch.notes()) == "");
}

TEST(Executor, StopsAtAnyPeriod) {
  const Plan plan = pipeline(3);
  for (uint64_t periods = 0; periods < 8; ++periods) expect_runs(plan, {.first = 5, .periods = periods});
}

TEST(Executor, RunsGoOnWhereTheLastOneEnded) {
  const Plan plan = pipeline(2);
  for (const uint64_t first : {0, 3, 6}) expect_runs(plan, {.first = first, .periods = 3});
  FakeHandlers handlers(plan, {.periods = 4});
  FakeMachine machine(plan, handlers);
  EXPECT_EQ(machine.executor.run(0), 4u);
  EXPECT_EQ(machine.executor.run(4), 0u);  // the same executor again: begin_period says no at once
}

TEST(Executor, AStreamWaitsForTheLastOfItsProducers) {
  // Compute depends on the copies of this and of the last period, named in either order, and on two copies of one period.
  for (const bool swapped : {false, true}) {
    Plan plan = empty_plan();
    const uint32_t a = add(plan, Lane::h2d);
    const uint32_t b = add(plan, Lane::h2d);
    std::vector<Dep> deps{{a, 1}, {a, 0}};
    if (swapped) std::swap(deps[0], deps[1]);
    add(plan, Lane::compute, deps);
    deps = {{a, 0}, {b, 0}};
    if (swapped) std::swap(deps[0], deps[1]);
    add(plan, Lane::compute, deps);
    order_plan(plan);
    FakeHandlers handlers(plan, {.periods = 5, .jitter_us = 0});
    handlers.at_work = [&](const OpId& id) {
      if (plan.ops[id.second].lane == Lane::h2d) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    };
    FakeMachine machine(plan, handlers);
    machine.executor.run(0);
    EXPECT_EQ(joined(handlers.watch.notes()), "");
  }
}

TEST(Executor, NoLaneRunsMoreThanThreePeriodsAhead) {
  // Reads depend on nothing; what they feed, also in later periods, is slow.
  Plan plan = empty_plan();
  const uint32_t read = add(plan, Lane::disk_state);
  add(plan, Lane::update, {{read, 0}, {read, 1}, {read, 2}, {read, 3}});
  add(plan, Lane::commit, {{1, 2}});
  order_plan(plan);
  FakeHandlers handlers(plan, {.periods = 30, .jitter_us = 0, .skip_disk = 1});
  handlers.at_work = [&](const OpId& id) {
    if (id.second == 1) std::this_thread::sleep_for(std::chrono::microseconds(500));
  };
  FakeMachine machine(plan, handlers);
  EXPECT_EQ(machine.executor.run(0), 30u);
  EXPECT_EQ(joined(handlers.watch.notes()), "");
}

// The smallest pools of weights and gradients, one state tile and one device slot.
Plan smallest_training_plan(const Layout& layout, PlanOptions options) {
  for (uint32_t n = 1;; ++n) {
    options.pools = {.weights = n, .state = 1, .gradients = n, .device_slots = 1};
    Plan plan = build_train_plan(layout, options);
    try {
      check_plan(plan);
      return plan;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::config || n > 100) throw;
    }
  }
}

TEST(Executor, TrainingPlansRunAtTheSmallestAndTheDefaultPools) {
  for (const int head : {0, 3})
    for (const Placement placement : {Placement::none, Placement::forward, Placement::backward, Placement::spread})
      for (const auto& [weights, state] : {std::pair(Tier::nvme, Tier::nvme), {Tier::none, Tier::nvme}, {Tier::cpu, Tier::cpu}}) {
        const Layout layout = small_layout(3, 2, head, 3);
        const PlanOptions options{.micro_batches = 2, .weights = weights, .state = state, .placement = placement};
        SCOPED_TRACE(fmt::format("head {}, placement {}, weights {}, state {}", head, to_string(placement), to_string(weights),
                                 to_string(state)));
        expect_runs(smallest_training_plan(layout, options), {.periods = 4, .jitter_us = 30});
        expect_runs(build_train_plan(layout, options), {.periods = 4, .jitter_us = 30});
      }
}

TEST(Executor, EveryOperationLeavesASpanInTheTrace) {
  const Plan plan = pipeline(2);
  FakeHandlers handlers(plan, {.periods = 3});
  base::Trace trace;
  FakeMachine machine(plan, handlers, &trace);
  machine.executor.run(0);
  const std::string file = testing::TempDir() + "executor_trace.json";
  trace.write(file);
  std::ifstream in(file);
  const std::string json{std::istreambuf_iterator<char>(in), {}};
  for (uint32_t op = 0; op < plan.ops.size(); ++op) {
    size_t spans = 0;
    const std::string name = "\"" + plan.name(op) + "\"";
    for (size_t at = json.find(name); at != std::string::npos; at = json.find(name, at + 1)) ++spans;
    EXPECT_EQ(spans, 3u) << name;
  }
}

// Runs with a failure at `id`: it is reported once, by name and kind, and nothing runs after run() has returned.
void expect_failure(const Plan& plan, const OpId& id, bool early) {
  FakeHandlers handlers(plan, {.periods = 3, .jitter_us = 0, .fail = id, .fail_early = early});
  FakeMachine machine(plan, handlers);
  try {
    machine.executor.run(0);
    FAIL() << plan.name(id.second);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::numerics);
    EXPECT_EQ(error.what(), plan.name(id.second) + " of period " + std::to_string(id.first) + ": injected");
  }
  const size_t begun = handlers.watch.begun();
  EXPECT_EQ(joined(handlers.watch.notes()), "");
  for (uint32_t op = 0; op < plan.ops.size(); ++op)
    for (const Dep& dep : plan.ops[op].deps) {
      if (dep.op != id.second) continue;
      EXPECT_FALSE(handlers.watch.has_begun({id.first + dep.periods, op})) << plan.name(op);
    }
  EXPECT_THROW(machine.executor.run(0), Error);
  EXPECT_EQ(handlers.watch.begun(), begun);
}

TEST(Executor, AFailureOfAnyOperationDrainsAndNamesIt) {
  const Plan plan = pipeline(2);
  for (uint64_t period = 0; period < 3; ++period)
    for (uint32_t op = 0; op < plan.ops.size(); ++op) {
      expect_failure(plan, {period, op}, false);
      expect_failure(plan, {period, op}, true);
    }
}

TEST(Executor, NoCommitAfterAFailure) {
  // Period 1's first read fails while the commit of period 0 waits for a slow update.
  Plan plan = empty_plan();
  const uint32_t read = add(plan, Lane::disk_weights);
  const uint32_t update = add(plan, Lane::update);
  const uint32_t commit = add(plan, Lane::commit, {{update, 0}});
  order_plan(plan);
  FakeHandlers handlers(plan, {.jitter_us = 0, .fail = OpId{1, read}});
  handlers.at_work = [&](const OpId& id) {
    if (id == OpId{0, update})
      for (int i = 0; i < 2000 && !handlers.watch.has_begun({1, read}); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (id == OpId{0, update}) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  FakeMachine machine(plan, handlers);
  EXPECT_THROW(machine.executor.run(0), Error);
  EXPECT_FALSE(handlers.watch.has_begun({0, commit}));
}

TEST(Executor, OtherExceptionsAreNamedToo) {
  class Handlers final : public OpHandlers {
   public:
    bool begin_period(uint64_t) override { return true; }
    void enqueue(const OpRun&, gpu::Stream& stream) override {
      stream.enqueue([] { throw std::runtime_error("from the math"); });
    }
    std::optional<DiskRequest> request(const OpRun&) override { return std::nullopt; }
    void run(const OpRun&) override {}
  } handlers;
  Plan plan = empty_plan();
  add(plan, Lane::compute);
  order_plan(plan);
  FakeMachine machine(plan, handlers);
  try {
    machine.executor.run(0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "Forward 0 of period 0: from the math");
  }
}

TEST(Executor, AFailureOfBeginPeriodDrains) {
  class Handlers final : public OpHandlers {
   public:
    bool begin_period(uint64_t period) override {
      if (period == 2) base::fail(ErrorKind::data, "no more text");
      return true;
    }
    void enqueue(const OpRun&, gpu::Stream&) override {}
    std::optional<DiskRequest> request(const OpRun&) override { return std::nullopt; }
    void run(const OpRun&) override { std::this_thread::sleep_for(std::chrono::milliseconds(1)), ++ran; }
    std::atomic<int> ran = 0;
  } handlers;
  Plan plan = empty_plan();
  add(plan, Lane::update);
  order_plan(plan);
  FakeMachine machine(plan, handlers);
  try {
    machine.executor.run(0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
  }
  EXPECT_EQ(handlers.ran, 2);
}

TEST(Executor, AnAbandonedStepDrainsAndThrows) {
  const Plan plan = pipeline(3);
  FakeHandlers handlers(plan, {.periods = 1000000, .jitter_us = 0});
  FakeMachine machine(plan, handlers);
  handlers.at_work = [&](const OpId& id) {
    if (id == OpId{5, 2}) machine.executor.abandon();
  };
  try {
    machine.executor.run(0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::interrupted);
  }
  const size_t begun = handlers.watch.begun();
  EXPECT_EQ(handlers.watch.done(), begun);
  EXPECT_EQ(joined(handlers.watch.notes()), "");
  EXPECT_THROW(machine.executor.run(6), Error);
  EXPECT_EQ(handlers.watch.begun(), begun);
}

TEST(Executor, APlanThatCannotGoOnIsAnErrorNotAHang) {
  Plan plan = empty_plan();
  const uint32_t a = add(plan, Lane::update);
  const uint32_t b = add(plan, Lane::commit, {{a, 0}});
  plan.ops[a].deps.push_back({b, 0});
  order_plan(plan);
  FakeHandlers handlers(plan, {});
  FakeMachine machine(plan, handlers);
  try {
    machine.executor.run(0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bug);
    EXPECT_NE(std::string(error.what()).find("Forward 0 of period 0 waits for 1"), std::string::npos) << error.what();
  }
}

TEST(Executor, StallsOfComputeAreCountedByCause) {
  // Compute waits 30 ms for a read and 20 ms for a copy that it is enqueued before. Spans of device lanes begin at an estimate, so
  // the bounds are loose.
  Plan plan = empty_plan();
  const uint32_t read = add(plan, Lane::disk_weights);
  const uint32_t first = add(plan, Lane::compute, {{read, 0}});
  const uint32_t copy = add(plan, Lane::h2d, {{first, 0}});
  const uint32_t second = add(plan, Lane::compute, {{copy, 0}});
  for (Op& op : plan.ops) op.bytes = 100;
  order_plan(plan);
  FakeHandlers handlers(plan, {.periods = 1, .jitter_us = 0});
  handlers.at_work = [&](const OpId& id) {
    const int ms = id.second == read ? 30 : id.second == copy ? 20 : id.second == second ? 10 : 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  };
  FakeMachine machine(plan, handlers);
  const auto begin = std::chrono::steady_clock::now();
  machine.executor.run(0);
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const ExecutorStats stats = machine.executor.take_stats();
  const auto at = [](Lane lane) { return static_cast<size_t>(lane); };
  EXPECT_GE(stats.busy[at(Lane::disk_weights)], 0.025);
  EXPECT_GE(stats.busy[at(Lane::h2d)], 0.010);
  EXPECT_GE(stats.busy[at(Lane::compute)], 0.005);
  EXPECT_GE(stats.stall_by_lane[at(Lane::disk_weights)], 0.025);
  EXPECT_GE(stats.stall_by_lane[at(Lane::h2d)], 0.010);
  EXPECT_GE(stats.compute_stall, 0.035);
  EXPECT_LE(stats.compute_stall + stats.busy[at(Lane::compute)], wall + 1e-9);
  EXPECT_EQ(stats.bytes[at(Lane::compute)], 200u);
  EXPECT_EQ(machine.executor.take_stats().compute_stall, 0);
}

// Communication of 60 ms: 20 beside a computation, then 40 while the next one waits for it.
TEST(Executor, CountsCommunicationThatNothingHides) {
  Plan plan = empty_plan();
  const uint32_t start = add(plan, Lane::h2d);
  const uint32_t beside = add(plan, Lane::compute, {{start, 0}});
  const uint32_t gather = add(plan, Lane::comm, {{start, 0}});
  const uint32_t after = add(plan, Lane::compute, {{gather, 0}, {beside, 0}});
  const uint32_t hidden = add(plan, Lane::comm, {{gather, 0}});
  order_plan(plan);
  FakeHandlers handlers(plan, {.periods = 1, .jitter_us = 0});
  handlers.at_work = [&](const OpId& id) {
    const int ms = id.second == beside ? 20 : id.second == gather ? 60 : id.second == after ? 60 : id.second == hidden ? 30 : 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  };
  FakeMachine machine(plan, handlers);
  machine.executor.run(0);
  const ExecutorStats stats = machine.executor.take_stats();
  EXPECT_GE(stats.busy[static_cast<size_t>(Lane::comm)], 0.085);
  EXPECT_GE(stats.exposed, 0.025);
  EXPECT_LE(stats.exposed, stats.busy[static_cast<size_t>(Lane::comm)] - 0.025);
  EXPECT_LE(stats.exposed, stats.compute_stall);
}

TEST(Executor, FiftyThousandOperationsAreCheap) {
  Plan plan = empty_plan();
  std::vector<Dep> all;
  for (uint32_t i = 0; i < 50000; ++i) all.push_back({add(plan, i % 2 == 0 ? Lane::disk_weights : Lane::disk_write_weights, i == 0 ? std::vector<Dep>{} : std::vector<Dep>{{i - 1, 0}}), 0});
  add(plan, Lane::commit, all);
  order_plan(plan);
  class Handlers final : public OpHandlers {
   public:
    bool begin_period(uint64_t period) override { return period < 4; }
    void enqueue(const OpRun&, gpu::Stream&) override {}
    std::optional<DiskRequest> request(const OpRun&) override { return std::nullopt; }
    void run(const OpRun&) override {}
    void done(const OpRun&) override { ++count; }
    size_t count = 0;
  } handlers;
  FakeMachine machine(plan, handlers);
  machine.executor.run(0);
  EXPECT_EQ(handlers.count, 4 * plan.ops.size());
}

TEST(Executor, MalformedPlansAreRefused) {
  const auto refused = [&](const Plan& plan) {
    FakeHandlers handlers(plan, {});
    try {
      const Executor executor(plan, handlers, {});
    } catch (const Error& error) {
      return error.kind() == ErrorKind::bug;
    }
    return false;
  };
  EXPECT_TRUE(refused(empty_plan()));
  Plan no_stream = empty_plan();
  add(no_stream, Lane::compute);
  order_plan(no_stream);
  EXPECT_TRUE(refused(no_stream));
  Plan no_width = empty_plan();
  add(no_width, Lane::update);
  order_plan(no_width);
  no_width.widths.fill(0);
  EXPECT_TRUE(refused(no_width));
  Plan not_ordered = empty_plan();
  add(not_ordered, Lane::update);
  EXPECT_TRUE(refused(not_ordered));
  Plan no_such_op = empty_plan();
  add(no_such_op, Lane::update, {{7, 0}});
  order_plan(no_such_op);
  EXPECT_TRUE(refused(no_such_op));
}

}  // namespace
}  // namespace sluice::offload
