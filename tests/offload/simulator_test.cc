#include "offload/simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/error.h"
#include "offload/plan_builder.h"
#include "tests/offload/plan_models.h"
#include "tests/offload/simulated_machines.h"
#include "tests/paths.h"

namespace sluice::offload {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr size_t at(Lane l) {
  return static_cast<size_t>(l);
}

json fixture() {
  std::ifstream file(source_dir() / "tests/offload/data/simulated_periods.json");
  return json::parse(file);
}

Machine machine_of(const json& all, const std::string& name) {
  const json& box = all.at("boxes").at(name);
  const auto rate = [&](const char* key, double unit) { return box.at(key).get<double>() * unit; };
  Machine m;
  m.name = name;
  m.disk_read = rate("read", 1e9);
  m.disk_write = rate("write", 1e9);
  m.disk_mixed = rate("mixed", 1e9);
  m.h2d = rate("h2d", 1e9);
  m.d2h = rate("d2h", 1e9);
  m.dram = rate("dram", 1e9);
  m.adam = rate("adam", 1e9);
  m.compute = rate("flops", 1e12);
  m.flush = rate("flush", 1);
  m.disk_latency = all.at("latency").at("disk");
  m.copy_latency = all.at("latency").at("copy");
  m.update_latency = all.at("latency").at("update");
  if (rate("shared", 1) != 0) m.compute_cores = 1, m.update_cores = .5;
  return m;
}

Layout layout_of(const json& c) {
  const json& shape = c.at("shape");
  return Layout(model_of(shape.at("embedding"), shape.at("layer"), shape.at("head"), shape.at("layers")),
                Schema::bf16, 2 << 20);
}

PlanOptions options_of(const json& c) {
  PlanOptions o;
  const std::string tier = c.at("tier"), placement = c.at("placement");
  o.weights = tier == "nvme" ? Tier::nvme : Tier::cpu;
  o.state = tier == "ram" ? Tier::cpu : Tier::nvme;
  o.commit = o.write_weights = o.write_state = tier != "ram";
  for (const Placement p : {Placement::none, Placement::forward, Placement::backward, Placement::spread})
    if (placement == to_string(p)) o.placement = p;
  o.micro_batches = c.at("micro");
  o.lane_width = c.at("width");
  o.pools = {c.at("weights"), c.at("state"), 0, c.at("device_slots")};
  return o;
}

// Units of computation per parameter and token, as the other model has them.
FlopsOf flops_of(const json& c, const Layout& layout) {
  const double tokens = c.at("tokens").get<double>() / c.at("micro").get<double>();
  return [=, &layout](const Op& op) {
    const auto& block = layout.blocks()[static_cast<size_t>(op.block)];
    const bool head = op.kind == OpKind::loss;
    double parameters =
        static_cast<double>(head && layout.tied() ? layout.blocks()[0].trainable : block.trainable);
    if (op.block == 0 && !head) parameters *= 1e-3;
    return (op.kind == OpKind::forward ? 2 : 6) * parameters * tokens;
  };
}

// The other model is our schedule but for: one ring of weights tiles where we have two, copies of a lane that
// share the link (ours go one after the other), no block for the norm of a tied head, no rule of three live
// periods, and an end of the run after which nothing is read ahead. The norm shows where state buffers for
// half the model stand full behind the writes: its deferred update, just before the loss, has to wait for
// one.
TEST(Simulator, AgreesWithAnIndependentModel) {
  const json all = fixture();
  double worst = 0, sum = 0;
  for (const json& c : all.at("cases")) {
    const Machine machine = machine_of(all, c.at("box"));
    const Layout layout = layout_of(c);
    const Plan plan = build_train_plan(layout, options_of(c));
    const Simulation s = simulate(plan, machine, flops_of(c, layout));
    const double other = c.at("period"), off = s.step_seconds / other - 1;
    worst = std::max(worst, std::abs(off));
    sum += std::abs(off);
    const bool norm_waits = c.at("model") == "135M" && c.at("placement") == "forward";
    SCOPED_TRACE(c.dump());
    EXPECT_LE(std::abs(off), norm_waits ? 0.06 : 0.02) << "simulated " << s.step_seconds << " s";
    EXPECT_NEAR(s.bounds.at(0).seconds / c.at("bound").get<double>(), 1, 0.01);
    for (const Lane lane : {Lane::compute, Lane::update, Lane::h2d})
      EXPECT_NEAR(s.busy[at(lane)] / s.step_seconds, c.at("busy").at(to_string(lane)).get<double>(),
                  norm_waits ? 0.06 : 0.03)
          << to_string(lane);
  }
  RecordProperty("worst_disagreement", std::to_string(worst));
  RecordProperty("mean_disagreement", std::to_string(sum / static_cast<double>(all.at("cases").size())));
}

Plan small_plan(Placement placement, Tier tier = Tier::nvme, uint32_t micro = 1) {
  static const Layout layout = small_layout(3, 2, 0, 4);
  PlanOptions o;
  o.placement = placement;
  o.weights = o.state = tier;
  o.commit = o.write_weights = o.write_state = tier == Tier::nvme;
  o.micro_batches = micro;
  return build_train_plan(layout, o);
}

TEST(Simulator, ComputeAloneTakesItsOwnTime) {
  Machine m = round_machine();
  m.disk_read = m.disk_write = m.disk_mixed = m.h2d = m.d2h = m.dram = 1e15;
  m.adam = 1e14;
  const Simulation s = simulate(small_plan(Placement::none), m, flops_of_seconds(m, .01));
  // Five forwards, a loss and five backwards of three units each.
  EXPECT_NEAR(s.step_seconds, .01 * (5 + 3 + 5 * 3), 1e-4);
  EXPECT_EQ(s.bounds.at(0).resource, Resource::compute);
  EXPECT_NEAR(s.busy[at(Lane::compute)], s.step_seconds, 1e-4);
  EXPECT_TRUE(s.steady);
}

TEST(Simulator, StallsAddUpAndNameWhatIsSlow) {
  for (const Lane slow : {Lane::disk_state, Lane::h2d, Lane::d2h, Lane::update}) {
    Machine m = round_machine();
    m.disk_read = m.disk_write = m.disk_mixed = slow == Lane::disk_state ? 1e8 : 1e12;
    m.h2d = slow == Lane::h2d ? 1e7 : 1e12;
    m.d2h = slow == Lane::d2h ? 1e7 : 1e12;
    m.adam = slow == Lane::update ? 1e6 : 1e11;
    m.dram = 1e14;
    const Simulation s = simulate(small_plan(Placement::none), m, flops_of_seconds(m, 1e-4));
    SCOPED_TRACE(to_string(slow));
    EXPECT_NEAR(s.compute_stall + s.busy[at(Lane::compute)], s.step_seconds, 1e-6);
    const auto sum = [](const auto& lanes) { return std::accumulate(lanes.begin(), lanes.end(), 0.0); };
    EXPECT_NEAR(sum(s.stall_by_lane), s.compute_stall, 1e-6);
    EXPECT_NEAR(sum(s.stall_by_cause), s.compute_stall, 1e-6);
    double culprit = s.stall_by_cause[at(slow)];
    if (slow == Lane::disk_state)  // the disk has four lanes
      for (const Lane l : {Lane::disk_weights, Lane::disk_write_state, Lane::disk_write_weights})
        culprit += s.stall_by_cause[at(l)];
    EXPECT_GT(culprit, .9 * s.compute_stall);
  }
}

PlanOptions ram_options() {
  PlanOptions o;
  o.placement = Placement::forward;
  o.weights = o.state = Tier::cpu;
  o.commit = o.write_weights = o.write_state = false;
  return o;
}

// Everything but the network and the computation takes no time.
Machine network_machine(double net, double latency) {
  Machine m = round_machine();
  m.h2d = m.d2h = m.dram = 1e15;
  m.adam = 1e14;
  m.net = net;
  m.net_latency = latency;
  return m;
}

// One rank of two whose computation is as nothing: all of the communication shows. And where it is long, next to nothing does.
TEST(Simulator, CountsCommunicationThatNothingHides) {
  const Layout layout(model_of(kSmallTile, 16 * kSmallTile, kSmallTile, 12), Schema::bf16, kSmallTile, 2);
  const Plan plan = build_train_plan(layout, ram_options());
  const Machine m = network_machine(1e9, 0);
  const double bytes = [&] {
    double sum = 0;
    for (uint32_t i : plan.order[at(Lane::comm)]) sum += static_cast<double>(plan.ops[i].bytes);
    return sum;
  }();
  const Simulation bare = simulate(plan, m, flops_of_seconds(m, 1e-9));
  EXPECT_NEAR(bare.busy[at(Lane::comm)], bytes / m.net, 1e-6);
  EXPECT_GT(bare.exposed, .99 * bare.busy[at(Lane::comm)]);
  const Simulation covered = simulate(plan, m, flops_of_seconds(m, .01));
  EXPECT_NEAR(covered.busy[at(Lane::comm)], bytes / m.net, 1e-6);
  EXPECT_LT(covered.exposed, .2 * covered.busy[at(Lane::comm)]);
}

// As the emulated network has it: once a collective, and stage 0 reduces with two.
TEST(Simulator, ACollectiveTakesTheLatencyOfTheNetworkOnce) {
  const Layout layout(model_of(kSmallTile, kSmallTile, kSmallTile, 3), Schema::bf16, kSmallTile, 2);
  for (const uint32_t stage : {0u, 3u}) {
    PlanOptions o = ram_options();
    o.zero_stage = stage;
    const Machine m = network_machine(1e15, 1e-3);
    const Plan plan = build_train_plan(layout, o);
    size_t collectives = 0;
    for (uint32_t i : plan.order[at(Lane::comm)]) collectives += plan.ops[i].kind == OpKind::reduce && stage == 0 ? 2 : 1;
    const Simulation s = simulate(plan, m, flops_of_seconds(m, 1e-9));
    EXPECT_GE(s.step_seconds, 1e-3 * static_cast<double>(collectives) * .99) << "stage " << stage;
    EXPECT_LE(s.step_seconds, 1e-3 * static_cast<double>(collectives) * 1.05) << "stage " << stage;
  }
}

TEST(Simulator, CountsBytesOfAPeriod) {
  const Plan plan = small_plan(Placement::none);
  const Machine m = round_machine();
  const Simulation s = simulate(plan, m, flops_of_seconds(m, 1e-3));
  for (size_t lane = 0; lane < kLanes; ++lane) {
    uint64_t bytes = 0;
    for (uint32_t i : plan.order[lane]) bytes += plan.ops[i].bytes;
    EXPECT_EQ(s.bytes[lane], bytes);
  }
}

TEST(Simulator, EnqueueingTakesTheIssuingThread) {
  Machine m = round_machine();
  m.disk_read = m.disk_write = m.disk_mixed = m.h2d = m.d2h = m.dram = 1e15;
  m.adam = 1e14;
  const Plan plan = small_plan(Placement::none, Tier::cpu);
  const double without = simulate(plan, m, flops_of_seconds(m, 1e-6)).step_seconds;
  m.enqueue = 1e-3;
  size_t device = 0;
  for (const Op& op : plan.ops) device += is_device_lane(op.lane);
  EXPECT_GE(simulate(plan, m, flops_of_seconds(m, 1e-6)).step_seconds,
            static_cast<double>(device) * m.enqueue);
  EXPECT_LT(without, 1e-3);
}

TEST(Simulator, EvaluationPlansRunToo) {
  const Layout layout = small_layout(3, 2, 4, 4);
  const Machine m = round_machine();
  const Simulation s = simulate(build_eval_plan(layout, {}), m, flops_of_seconds(m, .01));
  EXPECT_NEAR(s.step_seconds, .01 * (5 + 3), .001);
}

TEST(Simulator, RefusesAMachineWithoutANeededRate) {
  Machine m = round_machine();
  m.adam = 0;
  EXPECT_THAT([&] { simulate(small_plan(Placement::none), m, flops_of_seconds(m, .01)); },
              ThrowsMessage<base::Error>(HasSubstr("has no adam.rate, which the plan needs")));
}

TEST(Simulator, APlanThatCannotGoOnIsABugNotAHang) {
  Plan plan = small_plan(Placement::none);
  const uint32_t a = plan.order[at(Lane::compute)][0], b = plan.order[at(Lane::compute)][1];
  plan.ops[a].deps.push_back({b, 0});
  const Machine m = round_machine();
  EXPECT_THAT([&] { simulate(plan, m, flops_of_seconds(m, .01)); },
              ThrowsMessage<base::Error>(HasSubstr("cannot go on")));
}

json traced(const Plan& plan, const Simulation& s) {
  base::Trace trace;
  trace_spans(plan, s, trace);
  const auto file = std::filesystem::temp_directory_path() / ("sluice_trace_" + std::to_string(getpid()) + ".json");
  trace.write(file);
  std::ifstream in(file);
  json document = json::parse(in);
  std::filesystem::remove(file);
  return document.at("traceEvents");
}

TEST(Simulator, TracesTwoPeriodsInTheRowsOfARun) {
  const Plan plan = small_plan(Placement::none);
  const Machine m = round_machine();
  const Simulation s = simulate(plan, m, flops_of_seconds(m, 1e-3), {.spans = true});
  std::map<std::string, int> names, rows;
  double last = 0;
  for (const json& event : traced(plan, s)) {
    if (event.at("ph") == "M") {
      ++rows[event.at("args").at("name").get<std::string>()];
    } else {
      ++names[event.at("name").get<std::string>()];
      EXPECT_GE(event.at("ts").get<double>(), 0);
      last = std::max(last, event.at("ts").get<double>() + event.at("dur").get<double>());
    }
  }
  EXPECT_EQ(names["Forward 1.0"], 2);
  EXPECT_GE(names["Update 0.0"], 1);  // the last one follows the last computation
  for (const char* row :
       {"compute", "update", "h2d", "d2h", "disk_state 0", "disk_state 1", "disk_weights 0"})
    EXPECT_EQ(rows[row], 1) << row;
  EXPECT_GE(last, 1.5e6 * s.step_seconds);
  EXPECT_LE(last, 4e6 * s.step_seconds);
}

// A commit that takes most of the step belongs to a period whose computation is over long before it.
TEST(Simulator, TracesEveryLaneThatIsAtWork) {
  Machine m = round_machine();
  m.flush = .2;
  for (const Placement placement : {Placement::none, Placement::forward, Placement::backward, Placement::spread}) {
    const Plan plan = small_plan(placement);
    const Simulation s = simulate(plan, m, flops_of_seconds(m, 1e-4), {.spans = true});
    std::set<std::string> rows;
    for (const json& event : traced(plan, s))
      if (event.at("ph") == "M") rows.insert(event.at("args").at("name"));
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const std::string name = to_string(static_cast<Lane>(lane));
      EXPECT_EQ(rows.contains(name) || rows.contains(name + " 0"), s.busy[lane] > 0) << name << " of " << to_string(placement);
    }
  }
}

// A period of 41,000 operations in well under a second, with all that it needs.
TEST(Simulator, IsQuick) {
  const Layout layout(model_of(525'000'000, 218'000'000, 525'000'000, 32), Schema::bf16, 2 << 20);
  PlanOptions o;
  o.placement = Placement::spread;
  const Plan plan = build_train_plan(layout, o);
  const Machine m = round_machine();
  const auto start = std::chrono::steady_clock::now();
  const Simulation s = simulate(plan, m, flops_of_seconds(m, .1));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  RecordProperty("seconds", std::to_string(seconds));
  EXPECT_GT(plan.ops.size(), 35'000u);
  EXPECT_LT(seconds, 3) << s.periods << " periods";
}

}  // namespace
}  // namespace sluice::offload
