// What sluice plan says of time: what binds a step, what a run and its first step take, and what a crash costs.
#include <cmath>

#include "tests/apps/plan_fixture.h"

namespace sluice::apps {
namespace {

using testing::HasSubstr;

class PlanTimeTest : public PlanFixture {};

// The state in RAM reaches the disk by commits alone: what they write and take is in the plan, in the forecast and in what was measured.
TEST_F(PlanTimeTest, CommitsAndEvaluationsAreAPartOfTheRun) {
  const Words ram{"zero_optimization.offload_param.device=cpu", "zero_optimization.offload_optimizer.device=cpu", "steps=5", "goals.disk_written=1MB",
                  "goals.max_hours=1"};
  Words set = ram;
  set.insert(set.end(), {"checkpoint.every=2", "run.eval_every=2"});
  const auto hours_of_steps = [](const json& p, double steps) { return steps * p.at("step_seconds").get<double>() / 3600; };
  const json p = plan_json("config.json", set, 10);
  const json &commits = p.at("commits"), &evaluations = p.at("evaluations");
  const double written = 3 * commits.at("bytes").get<double>();
  EXPECT_GE(commits.at("bytes").get<double>(), 12 * p.at("parameters").get<double>());
  EXPECT_EQ(p.at("goals").at("disk_written").at("predicted"), written);
  EXPECT_DOUBLE_EQ(p.at("bytes_per_step").at("disk_write").get<double>(), written / 5);
  EXPECT_GT(p.at("drive").at("written_per_day"), 0);
  EXPECT_GT(evaluations.at("seconds"), 0);
  EXPECT_NEAR(p.at("run_hours").get<double>(),
              hours_of_steps(p, 5) + (3 * commits.at("seconds").get<double>() + 2 * evaluations.at("seconds").get<double>()) / 3600, 1e-9);
  EXPECT_THAT(plan("config.json", set).out, HasSubstr("of the state in memory"));
  // None of both: the last commit, and steps.
  const json once = plan_json("config.json", ram, 10);
  EXPECT_EQ(once.at("goals").at("disk_written").at("predicted"), commits.at("bytes"));
  EXPECT_NEAR(once.at("run_hours").get<double>(), hours_of_steps(once, 5) + once.at("commits").at("seconds").get<double>() / 3600, 1e-9);

  Words all = ram;
  all.insert(all.end(), {"checkpoint.every=2"});
  const ProgramResult r = run(train(all, {"--json"}));
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(json::parse(r.out).at("goals").at("disk_written").at("measured"), written);
  EXPECT_THAT(r.err, HasSubstr("goals.disk_written will be missed"));  // known before the first one
  EXPECT_THAT(r.err, HasSubstr("of it by commits of the state in memory"));
  all[2] = "steps=7";  // a later start knows what earlier ones wrote
  const ProgramResult more = run(train(all, {"--json", "--resume", "auto"}));
  EXPECT_EQ(more.status, 0) << more.err;
  EXPECT_EQ(json::parse(more.out).at("goals").at("disk_written").at("measured"), written + 2 * commits.at("bytes").get<double>());
}

// A tiny model has little to compute and to move; every step waits for the drive to say that it is durable.
TEST_F(PlanTimeTest, ATinyModelWaitsForItsCommits) {
  const json p = plan_json("config.json", {"execution.overlap=none"});
  EXPECT_EQ(p.at("bottleneck"), "commit");
  EXPECT_GT(p.at("bounds").at("commit").get<double>(), .5 * p.at("step_seconds").get<double>());
  EXPECT_THAT(plan("config.json", {"execution.overlap=none"}).out, HasSubstr("waiting for commits to be durable: "));
  EXPECT_FALSE(plan_json("config.json", {"execution.overlap=none", "storage.durable=none"}).at("bounds").contains("commit"));
}

TEST_F(PlanTimeTest, ACrashCostsStepsAndTime) {
  const auto steps_lost = [&](const Words& set, const Words& sweep) {
    Words more{"--machine", "rtx4090-128g", "--json"};
    for (const std::string& s : sweep) more.insert(more.end(), {"--sweep", s});
    const ProgramResult r = plan("config.json", set, more);
    EXPECT_EQ(r.status, 0) << r.err;
    std::vector<double> steps;
    const json document = json::parse(r.out);
    for (const json& row : document.at("sweep")) {
      steps.push_back(row.at("crash_loses").at("steps"));
      EXPECT_GE(row.at("crash_loses").at("seconds").get<double>(), steps.back() * row.at("step_seconds").get<double>());
    }
    return steps;
  };
  EXPECT_EQ(steps_lost({"steps=100"}, {R"(execution.overlap=["none","forward"])"}), (std::vector<double>{1, 2}));
  EXPECT_EQ(steps_lost({"storage.durable=checkpoint"}, {"steps=[20,100]", "checkpoint.every=[0,30]"}), (std::vector<double>{20, 20, 100, 30}));
  EXPECT_EQ(steps_lost({"storage.durable=none"}, {"steps=100"}), (std::vector<double>{100}));
  EXPECT_TRUE(plan_json("big.json", {"memory.host=400GiB", "memory.gpu=64GiB", "storage.durable=none"}).at("crash_loses").at("steps").is_null());
  EXPECT_THAT(plan("config.json", {"steps=100", "storage.durable=none"}).out, HasSubstr("loses 100 steps at most (the whole run), about "));
}

// With as many tokens as the plan says, the device and what bound before take the same time. Block inputs on the host grow along.
TEST_F(PlanTimeTest, TheDeviceIsTheLimitFromSoManyTokensOn) {
  const auto planned = [&](const char* boundaries, uint64_t accumulation, const Words& more = {}) {
    Words set{"model.sizes=\"Llama-3.2-1B\"", "data.sequence_length=1024", "memory.host=40GiB", "memory.gpu=40GiB", "storage.durable=none",
              "execution.overlap=forward", "execution.keep_graphs=0", "execution.keep_weights=0", "memory.pinned=0",
              "execution.device_slots=2", "execution.pools.state=32", std::string("execution.boundaries=") + boundaries, "gradient_accumulation_steps=" + std::to_string(accumulation)};
    set.insert(set.end(), more.begin(), more.end());
    return plan_json("big.json", set);
  };
  for (const char* boundaries : {"gpu", "host"}) {
    const json p = planned(boundaries, 1, {"machine.links.h2d=1.5GB/s"});
    const double accumulation = std::round(p.at("device_limit_tokens").get<double>() / 1024);
    const json bounds = planned(boundaries, static_cast<uint64_t>(accumulation), {"machine.links.h2d=1.5GB/s"}).at("bounds");
    double most = 0;
    for (const auto& [resource, seconds] : bounds.items())
      if (resource != "compute" && resource != "cores") most = std::max(most, seconds.get<double>());
    EXPECT_NEAR(bounds.at("compute").get<double>() / most, 1, .5 / accumulation + 1e-3) << boundaries;
  }
  EXPECT_TRUE(planned("host", 1, {"machine.links.h2d=10MB/s"}).at("device_limit_tokens").is_null());
}

// What lives in RAM comes from the store first.
TEST_F(PlanTimeTest, TheFirstStepWaitsForWhatStaysInMemory) {
  const auto planned = [&](const char* tier) {
    return plan_json("config.json", {std::string("zero_optimization.offload_param.device=") + tier,
                                     std::string("zero_optimization.offload_optimizer.device=") + tier, "memory.pinned=0", "machine.links.disk_read=1MB/s"});
  };
  const json ram = planned("cpu"), disk = planned("nvme");
  const double parameters = ram.at("parameters");
  EXPECT_EQ(disk.at("first_step").at("load_memory"), 0);
  EXPECT_NEAR(ram.at("first_step").at("load_memory").get<double>(), 12 * parameters / 1e6, .2 * 12 * parameters / 1e6);
  for (const json& p : {ram, disk}) {
    const json& f = p.at("first_step");
    const double before = f.at("read_model").get<double>() + f.at("make_store").get<double>();
    EXPECT_NEAR(p.at("first_step_seconds").get<double>(), before + f.at("resumed").get<double>(), 1e-9);
    EXPECT_NEAR(f.at("resumed").get<double>(), f.at("load_memory").get<double>() + f.at("step").get<double>(), 1e-9);
  }
  EXPECT_THAT(plan("config.json").out, HasSubstr("loading from it what stays in memory"));
}

}  // namespace
}  // namespace sluice::apps
