// sluice plan, as people run it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/apps/plan_fixture.h"

namespace sluice::apps {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

class PlanTest : public PlanFixture {};

TEST_F(PlanTest, JsonHasTheFixedNames) {
  const json p = plan_json("big.json", {"memory.host=400GiB", "memory.gpu=64GiB", "memory.pinned=0", "execution.keep_weights=0"});
  EXPECT_EQ(p.at("fits"), true);
  EXPECT_GT(p.at("step_seconds").get<double>(), 100);
  EXPECT_NEAR(p.at("tokens_per_second").get<double>(), 8 * 4096 / p.at("step_seconds").get<double>(), 1e-6);
  EXPECT_EQ(p.at("bottleneck"), "disk");
  for (const char* place : {"gpu", "host", "disk"})
    EXPECT_GT(p.at("memory").at(place).at("need").get<uint64_t>(), 1u << 30) << place;
  EXPECT_EQ(p.at("memory").at("host").at("have"), 400ull << 30);
  EXPECT_TRUE(p.at("memory").at("disk").at("have").is_null());  // the disk of another machine
  const double parameters = p.at("parameters");
  EXPECT_NEAR(parameters, 70.55e9, 0.01e9);
  const auto per_parameter = [&](const char* link) {
    return p.at("bytes_per_step").at(link).get<double>() / parameters;
  };
  EXPECT_NEAR(per_parameter("disk_read"), 14, 0.1);
  EXPECT_NEAR(per_parameter("disk_write"), 12, 0.1);
  EXPECT_NEAR(per_parameter("h2d"), 4, 0.1);
  EXPECT_NEAR(per_parameter("d2h"), 2, 0.1);
  EXPECT_GT(p.at("drive").at("days_of_life").get<double>(), 1);
  EXPECT_GT(p.at("device_limit_tokens").get<double>(), 8 * 4096);
  EXPECT_EQ(p.at("machine").at("assumed"), true);
}

// Two seconds in all, of which most is the start of the program; counted in processor time, since tests run
// beside each other.
TEST_F(PlanTest, ABigModelIsPlannedInAMoment) {
  rusage before{}, after{};
  getrusage(RUSAGE_CHILDREN, &before);
  plan_json("big.json", {"memory.host=400GiB", "memory.gpu=64GiB"});
  getrusage(RUSAGE_CHILDREN, &after);
  const auto seconds = [](const rusage& u) {
    return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
  };
  EXPECT_LT(seconds(after) - seconds(before), 4);
}

// Two ranks on a network where computation is the longer in the forward and in the backward. What shows is what the step boundary waits for: the
// embedding's gradient, and the gathers of the embedding and the first layer.
TEST_F(PlanTest, CommunicationHidesBehindLongerComputation) {
  write_all(at("ranks.json"), R"({"model": {"sizes": "Llama-3.1-8B"}, "data": {"sequence_length": 2048}, "gradient_accumulation_steps": 8,
      "train_micro_batch_size_per_gpu": 4, "execution": {"overlap": "forward"}, "memory": {"gpu": "200GiB", "host": "400GiB"}})");
  for (const char* stage : {"1", "2", "3"}) {
    const auto planned = [&](double net) {
      const ProgramResult r = plan("ranks.json",
                                   {std::string("zero_optimization.stage=") + stage, "zero_optimization.offload_param.device=\"none\"",
                                    "zero_optimization.offload_optimizer.device=\"cpu\"", "machine.links.net=" + std::to_string(net / 1e6) + "MB/s"},
                                   {"--machine", "a100-40g", "--world", "2", "--json"});
      EXPECT_EQ(r.status, 0) << r.err;
      return json::parse(r.out);
    };
    const json bounds = planned(1e9).at("bounds");
    const json p = planned(1e9 * 2 * bounds.at("net").get<double>() / bounds.at("compute").get<double>());
    EXPECT_EQ(p.at("bottleneck"), "compute");
    const json& communication = p.at("communication");
    EXPECT_NEAR(2 * communication.at("seconds").get<double>() / bounds.at("compute").get<double>(), 1, .01) << "stage " << stage;
    EXPECT_GE(communication.at("hidden").get<double>(), .9) << "stage " << stage;
  }
}

// Two ranks of a machine write what one would: its drives last as long. On two machines each writes half.
TEST_F(PlanTest, DrivesTakeWhatAllRanksOfAMachineWrite) {
  const auto planned = [&](const Words& more) {
    Words words{"--machine", "a100-40g", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult r = plan("big.json", {"model.sizes=\"Llama-3.1-8B\"", "goals.disk_written=1TB", "steps=1000", "memory.pinned=0", "memory.host=400GiB"}, words);
    EXPECT_EQ(r.status, 10) << r.err;
    return json::parse(r.out);
  };
  const json one = planned({}), two = planned({"--world", "2"}), apart = planned({"--world", "2", "--nodes", "2"});
  const auto written = [](const json& p) { return p.at("bytes_per_step").at("disk_write").get<double>(); };
  const auto in_all = [](const json& p) { return p.at("goals").at("disk_written").at("predicted").get<double>(); };
  const auto a_day = [](const json& p) { return p.at("drive").at("written_per_day").get<double>() * p.at("step_seconds").get<double>(); };
  for (const auto& figure : {std::function<double(const json&)>(written), std::function<double(const json&)>(in_all), std::function<double(const json&)>(a_day)}) {
    EXPECT_NEAR(figure(two) / figure(one), 1, .01);
    EXPECT_NEAR(2 * figure(apart) / figure(one), 1, .01);
  }
  EXPECT_NEAR(two.at("bytes_per_step").at("disk_read").get<double>() / one.at("bytes_per_step").at("disk_read").get<double>(), 1, .01);
}

// More device memory holds more blocks, to the last one that fits; less of the model crosses the links.
TEST_F(PlanTest, BlocksStayOnTheDeviceAsFarAsTheyFit) {
  const Words tiers{"model.sizes=\"Llama-3.2-1B\"", "zero_optimization.offload_param.device=cpu", "zero_optimization.offload_optimizer.device=cpu",
                    "storage.tbw=null", "data.sequence_length=1024", "memory.host=64GiB"};
  const auto planned = [&](const std::string& blocks, const std::string& gpu, int status = 0) {
    Words set = tiers;
    set.insert(set.end(), {"execution.keep_graphs=0", "execution.keep_weights=0"});  // for the same bytes of the other blocks
    set.push_back("execution.resident_blocks=" + blocks);
    set.push_back("memory.gpu=" + gpu);
    return plan_json("big.json", set, status);
  };
  const json none = planned("0", "16GiB");
  double before = none.at("step_seconds");
  uint64_t moved = none.at("bytes_per_step").at("h2d");
  for (const char* gpu : {"8GiB", "12GiB", "16GiB"}) {
    const json some = planned("auto", gpu);
    EXPECT_LE(some.at("memory").at("gpu").at("need").get<uint64_t>(), some.at("memory").at("gpu").at("have").get<uint64_t>());
    EXPECT_LT(some.at("bytes_per_step").at("h2d").get<uint64_t>(), moved) << gpu;
    EXPECT_LT(some.at("step_seconds").get<double>(), before) << gpu;
    for (const json& choice : some.at("chosen"))  // which finds that the blocks fit
      EXPECT_THAT(choice.at("reason").get<std::string>(), testing::Not(HasSubstr("does not fit"))) << gpu;
    before = some.at("step_seconds");
    moved = some.at("bytes_per_step").at("h2d");
  }
  planned("18", "4GiB", 6);
  EXPECT_THAT(plan("big.json", {tiers[0], tiers[1], tiers[2], tiers[3], tiers[4], tiers[5], "execution.resident_blocks=18", "memory.gpu=12GiB"}).err,
              HasSubstr("execution.resident_blocks = 0"));
  EXPECT_THAT(plan("big.json", {tiers[0], tiers[1], tiers[2], tiers[3], tiers[4], tiers[5], "execution.resident_blocks=3", "memory.gpu=16GiB"}).out,
              HasSubstr("first 3 of 18 blocks on the device"));
}

// What is in RAM may be updated on a guess where RAM has room for a copy of its old state; how much of it is worth that, the simulator says.
TEST_F(PlanTest, ShadowsTakeWhatPaysAndFits) {
  const auto set = [](const Words& more) {
    Words words{"model.sizes=\"Llama-3.2-1B\"", "zero_optimization.offload_param.device=cpu", "zero_optimization.offload_optimizer.device=cpu",
                "storage.tbw=null", "data.sequence_length=2048", "gradient_accumulation_steps=8", "execution.resident_blocks=0", "memory.gpu=20GiB"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const auto need = [](const json& p) { return p.at("memory").at("host").at("need").get<double>(); };
  const auto seconds = [](const json& p) { return p.at("step_seconds").get<double>(); };
  const json forward = plan_json("big.json", set({"memory.host=64GiB", "execution.overlap=forward"}));
  const json quarter = plan_json("big.json", set({"memory.host=64GiB", "execution.overlap=backward"}));
  const json little = plan_json("big.json", set({"memory.host=18GiB", "execution.overlap=backward"}));
  const json chosen = plan_json("big.json", set({"memory.host=64GiB", "execution.overlap=auto"}));
  const double parameters = forward.at("parameters");
  EXPECT_NEAR(need(quarter) - need(forward), 3 * parameters, 0.05 * parameters);
  EXPECT_GT(need(little), need(forward) + 0.2 * parameters);
  EXPECT_LE(need(little), 18.0 * (1u << 30));
  EXPECT_LT(seconds(chosen), 0.95 * seconds(forward));
  EXPECT_GT(need(chosen), need(forward) + parameters);
  EXPECT_THAT(plan("big.json", set({"memory.host=64GiB", "execution.overlap=auto"})).out, HasSubstr("of shadows"));
  EXPECT_THAT(plan("big.json", set({"memory.host=64GiB", "execution.overlap=spread"})).out, HasSubstr("shadows"));
  EXPECT_THAT(plan("big.json", set({"memory.host=64GiB", "execution.overlap=spread", "memory.shadow=0"})).out, HasSubstr("memory.shadow is 0"));
  EXPECT_THAT(plan("big.json", set({"memory.host=20GiB", "execution.overlap=spread", "memory.shadow=14GiB"})).err, HasSubstr("memory.shadow = 0"));
}

TEST_F(PlanTest, ATrillionParametersPlanWithoutOverflow) {
  write_all(
      at("trillion.json"),
      R"({"model": {"sizes": {"hidden_size": 24576, "intermediate_size": 98304, "num_hidden_layers": 104,
    "num_attention_heads": 192, "num_key_value_heads": 192, "vocab_size": 128256}}, "train_micro_batch_size_per_gpu": 1,
    "memory": {"host": "8TiB", "gpu": "160GiB"}, "data": {"sequence_length": 2048},
    "zero_optimization": {"offload_param": {"device": "nvme"}, "offload_optimizer": {"device": "nvme"}}})");
  const json p = plan_json("trillion.json");
  EXPECT_GT(p.at("parameters").get<double>(), 0.95e12);
  EXPECT_NEAR(p.at("memory").at("disk").at("need").get<double>(), 24 * p.at("parameters").get<double>(),
              1e11);
  EXPECT_NEAR(p.at("bytes_per_step").at("disk_write").get<double>(), 12 * p.at("parameters").get<double>(),
              1e11);
  EXPECT_GT(p.at("step_seconds").get<double>(), 4000);
}

// Every row of memory says how it is known, in the table and in JSON.
TEST_F(PlanTest, MemorySaysHowItIsKnown) {
  std::set<std::string> words;
  const json p = plan_json("config.json");
  for (const json& place : p.at("memory"))
    for (const json& row : place.at("rows")) words.insert(row.at("known"));
  EXPECT_EQ(words, (std::set<std::string>{"estimated", "exact"}));
  const std::string text = plan("config.json").out;
  EXPECT_THAT(text, ContainsRegex("gpu    temporaries .* estimated\n"));
  EXPECT_THAT(text, ContainsRegex("disk   slots .* exact\n"));
  EXPECT_THAT(text, HasSubstr("\nexact: follows from the plan; measured: "));
}

TEST_F(PlanTest, WhatDoesNotFitNamesASettingThatDoes) {
  const ProgramResult r =
      plan("big.json", {"memory.gpu=64GiB"});  // all wire gradients stay on the host: 141 GB
  EXPECT_EQ(r.status, 5);
  EXPECT_THAT(r.err, HasSubstr("host needs"));
  EXPECT_THAT(r.err, HasSubstr("would fit"));
  EXPECT_EQ(plan_json("big.json", {"memory.gpu=64GiB"}, 5).at("fits"), false);
  const ProgramResult gpu = plan("big.json", {"memory.host=400GiB", "execution.boundaries=gpu", "execution.device_slots=2"});
  EXPECT_EQ(gpu.status, 6);
  EXPECT_THAT(gpu.err, HasSubstr("gpu needs 57.9 GiB and has 22.0 GiB"));
  EXPECT_THAT(gpu.err, HasSubstr("execution.boundaries = host would fit"));
  const ProgramResult no_change = plan("big.json", {"memory.host=400GiB", "memory.gpu=16GiB", "execution.boundaries=host", "execution.device_slots=1"});
  EXPECT_EQ(no_change.status, 6);
  EXPECT_THAT(no_change.err, HasSubstr("gpu needs 17.0 GiB and has 16.0 GiB: memory.gpu = 18GiB would fit; or gradient_accumulation_steps = 2 (a smaller batch) would fit"));
  const ProgramResult smaller =
      plan("big.json", {"memory.host=400GiB", "execution.boundaries=gpu", "execution.device_slots=1", "gradient_accumulation_steps=1"});
  EXPECT_EQ(smaller.status, 0) << smaller.err;
}

TEST_F(PlanTest, TheLargestModelThatFitsIsNamed) {
  const Words fixed{"execution.keep_graphs=0", "execution.keep_weights=0", "execution.device_slots=2", "execution.pools.state=32",
                    "memory.pinned=0", "memory.host=500MiB", "execution.boundaries=gpu", "zero_optimization.offload_param.device=cpu",
                    "zero_optimization.offload_optimizer.device=cpu", "storage.tile=2097152"};
  const json p = plan_json("config.json", fixed);
  const int64_t layers = p.at("largest").at("layers");
  EXPECT_GT(p.at("largest").at("parameters").get<double>(), 20e6);  // of some 14 bytes each in RAM
  EXPECT_LT(p.at("largest").at("parameters").get<double>(), 500e6 / 13);
  const auto with_layers = [&](int64_t n) {
    json config = json::parse(read_all(at("model/config.json")));
    config["num_hidden_layers"] = n;
    write_all(at("model/config.json"), config.dump());
    return plan("config.json", fixed).status;
  };
  EXPECT_EQ(with_layers(layers), 0);
  EXPECT_EQ(with_layers(layers + std::max<int64_t>(2, layers / 25)), 5);
}

TEST_F(PlanTest, GoalsAreMetOrMissed) {
  ProgramResult r = plan("config.json", {"goals.step_seconds=100", "goals.max_hours=10"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_THAT(r.out, HasSubstr("goals.step_seconds met"));
  r = plan("config.json", {"goals.disk_written=1MB"});
  EXPECT_EQ(r.status, 10);
  EXPECT_THAT(r.out, HasSubstr("goals.disk_written MISSED"));
  EXPECT_THAT(r.out, HasSubstr(", limit 1.0 MB"));
  r = plan("config.json", {"goals.eval_loss=2"});
  EXPECT_EQ(r.status, 0);
  EXPECT_THAT(r.out, HasSubstr("only training can tell"));
}

// A run compares its goals while it is at work; a finished one exits 0 all the same.
TEST_F(PlanTest, ATrainingRunKeepsComparingItsGoals) {
  const ProgramResult r = run(train({"goals.max_hours=10", "goals.disk_written=1MB", "goals.eval_loss=1e-9", "run.eval_every=2"}, {"--json"}));
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_THAT(r.err, HasSubstr("goals.disk_written will be missed"));   // of the line of step 1
  EXPECT_THAT(r.err, HasSubstr("goals.max_hours met"));                 // of the summary
  EXPECT_THAT(r.err, HasSubstr("goals.disk_written MISSED"));
  EXPECT_THAT(r.err, HasSubstr("goals.eval_loss MISSED"));
  const json goals = json::parse(r.out).at("goals");
  EXPECT_EQ(goals.at("max_hours").at("met"), true);
  EXPECT_EQ(goals.at("disk_written").at("met"), false);
  EXPECT_GT(goals.at("disk_written").at("measured"), 1e6);
}

TEST_F(PlanTest, SweepsTakeAllCombinations) {
  const ProgramResult r =
      plan("config.json", {},
           {"--machine", "rtx4090-64g", "--json", "--sweep", "gradient_accumulation_steps=[1,2]", "--sweep",
            "zero_optimization.offload_optimizer.device=cpu", "--sweep",
            "zero_optimization.offload_optimizer.device=nvme"});
  EXPECT_EQ(r.status, 0) << r.err;
  const json rows = json::parse(r.out).at("sweep");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[1].at("set"),
            (json{"gradient_accumulation_steps=1", "zero_optimization.offload_optimizer.device=nvme"}));
  EXPECT_EQ(rows[3].at("tokens_per_step"), 2 * rows[1].at("tokens_per_step").get<double>());
  EXPECT_GT(rows[1].at("bytes_per_step").at("disk_read"), rows[0].at("bytes_per_step").at("disk_read"));
  const ProgramResult bad =
      plan("config.json", {}, {"--machine", "rtx4090-64g", "--sweep", "data.sequence_length=[64,1]"});
  EXPECT_EQ(bad.status, 0);
  EXPECT_THAT(bad.out, HasSubstr("data.sequence_length = 1: not allowed"));
}

TEST_F(PlanTest, AFasterDiskIsAWhatIf) {
  const json slow = plan_json("big.json", {"memory.host=400GiB", "memory.gpu=64GiB"});
  const json fast =
      plan_json("big.json", {"memory.host=400GiB", "memory.gpu=64GiB", "machine.links.disk_read=13GB/s",
                             "machine.links.disk_write=6GB/s"});
  EXPECT_NEAR(fast.at("bounds").at("disk").get<double>() / slow.at("bounds").at("disk").get<double>(), .5,
              .01);
  EXPECT_LT(fast.at("step_seconds").get<double>(), .75 * slow.at("step_seconds").get<double>());
}

TEST_F(PlanTest, WritesATrace) {
  const ProgramResult r = plan("config.json", {}, {"--machine", "rtx4090-64g", "--trace", "trace.json"});
  EXPECT_EQ(r.status, 0) << r.err;
  const json trace = json::parse(read_all(at("trace.json")));
  int updates = 0, commits = 0;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    updates += event.at("name").get<std::string>().starts_with("Update ");
    commits += event.at("name").get<std::string>().starts_with("Publish");
  }
  EXPECT_GT(updates, 0);
  EXPECT_GT(commits, 0);
}

// The table of a plan is the table of the run.
TEST_F(PlanTest, MemoryIsThatOfTheRun) {
  for (const Words& set :
       {Words{"execution.overlap=forward"}, Words{"execution.overlap=none", "gradient_accumulation_steps=2"},
        Words{"zero_optimization.offload_param.device=cpu", "execution.keep_graphs=1", "execution.overlap=spread"},
        Words{"zero_optimization.offload_param.device=cpu", "zero_optimization.offload_optimizer.device=cpu", "execution.overlap=spread"}}) {
    const ProgramResult r = plan("config.json", set, {});  // of this machine, so that both choose the same of what is left open
    EXPECT_EQ(r.status, 0) << r.err;
    const std::string before = succeed(train(set));
    std::filesystem::remove_all(at("run"));
    const auto rows = [](const std::string& text) {  // "place purpose ... need", but for what is estimated or
                                                     // not the machine's
      std::vector<std::string> found;
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);)
        if ((line.starts_with("gpu ") || line.starts_with("host ") || line.starts_with("disk ")) &&
            line.find("total") == std::string::npos && line.find("temporaries") == std::string::npos)
          found.push_back(line);
      return found;
    };
    EXPECT_GE(rows(r.out).size(), 6u);
    EXPECT_EQ(rows(r.out), rows(before));
  }
}

TEST_F(PlanTest, ARunWritesDownItsMemoryAndEveryFigure) {
  const std::string told = succeed(train({"steps=4", "execution.overlap=forward"}));
  EXPECT_THAT(told, HasSubstr("figures of the run"));
  const json memory = json::parse(read_all(at("run/memory.json")));
  std::map<std::string, uint64_t> need;
  for (const json& row : memory.at("rows"))
    if (row.at("beside") == false) need[row.at("place")] += row.at("need").get<uint64_t>();
  EXPECT_EQ(memory.at("peak").at("gpu"), need["gpu"]);    // the dry run counted what the run takes
  EXPECT_EQ(memory.at("peak").at("host"), need["host"]);
  EXPECT_EQ(memory.at("have").at("gpu"), 64 << 20);
  EXPECT_GT(memory.at("peak").at("resident"), need["gpu"] + need["host"]);
  std::istringstream lines(read_all(at("run/metrics.jsonl")));
  std::vector<json> steps;
  for (std::string line; std::getline(lines, line);)
    if (json step = json::parse(line); step.contains("loss")) steps.push_back(step);
  ASSERT_EQ(steps.size(), 4u);
  json::object_t sum;
  double written = 0, over_plan = 0, recomputed = 0;
  for (const json& s : steps) {
    double caused = 0;
    for (const auto& [lane, seconds] : s.at("stall").items()) caused += lane == "compute" ? 0 : seconds.get<double>();
    EXPECT_NEAR(caused, s.at("stall").at("compute"), 1e-9);  // the causes are the whole
    const json& phase = s.at("phase");
    const double on_device = phase.at("forward").get<double>() + phase.at("loss").get<double>() + phase.at("backward").get<double>() +
                             phase.at("recompute").get<double>();
    EXPECT_NEAR(std::max(0.0, s.at("step_seconds").get<double>() - on_device), phase.at("other"), 1e-6);
    recomputed += phase.at("recompute").get<double>();
    written += s.at("bytes").at("disk_write").get<double>();
    over_plan += s.at("bytes_over_plan").at("disk_write").get<double>();
    EXPECT_EQ(s.at("disk").at("failures"), 0);
    EXPECT_GT(s.at("flops").at("per_s"), 0);
    EXPECT_TRUE(s.at("flops").at("utilization").is_null());  // the machine has not been measured
  }
  EXPECT_NEAR(over_plan, 4, 1e-6);  // every planned byte, and no other
  EXPECT_GT(written, 0);
  EXPECT_GT(recomputed, 0);
  EXPECT_GT(steps.back().at("disk").at("write_p99"), 0);
  EXPECT_GE(steps.back().at("disk").at("write_depth"), 1);
  const json start = json::parse(read_all(at("run/starts.jsonl")));
  EXPECT_EQ(start.at("step"), 0);
  EXPECT_GT(start.at("open_seconds"), 0);
  EXPECT_EQ(run({"report", "run"}).status, 0);
  EXPECT_THAT(read_all(at("run/report.html")), HasSubstr("<h2>Memory</h2>"));
}

// A run stores its paths absolute; the same ones written relative are no change.
TEST_F(PlanTest, AResumeTellsOnlyWhatChanged) {
  succeed(train());
  EXPECT_THAT(succeed(resume()), testing::Not(HasSubstr("changed since")));
  EXPECT_THAT(succeed(resume({"steps=3"})), testing::AllOf(HasSubstr("steps: 2 -> 3"), testing::Not(HasSubstr("run.dir:"))));
}

TEST_F(PlanTest, ThisMachineIsMeasuredOnce) {
  const ProgramResult first = plan("config.json", {}, {"--json"});
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("measuring this machine"));
  const ProgramResult second = plan("config.json", {}, {"--json"});
  EXPECT_THAT(second.err, testing::Not(HasSubstr("measuring")));
  const double once = json::parse(first.out).at("step_seconds"),
               again = json::parse(second.out).at("step_seconds");
  EXPECT_NEAR(again / once, 1, 1e-4);  // the profile has six digits
  EXPECT_EQ(json::parse(first.out).at("machine").at("assumed"), false);
  if (std::filesystem::exists("/proc/driver/nvidia/version")) return;  // then "auto" may be the GPU
  EXPECT_THAT(plan("config.json", {"machine.device=auto"}, {}).err, testing::Not(HasSubstr("measuring")));
}

// A profile may have been taken while other programs were at work: its age is told, and it can be taken again.
TEST_F(PlanTest, AnOldProfileIsNamedAndCanBeTakenAgain) {
  EXPECT_THAT(plan("config.json", {}, {}).out, HasSubstr("(measured just now, "));
  const auto file = std::filesystem::directory_iterator(at("cache/sluice"))->path();
  json profile = json::parse(read_all(file));
  profile["disk"]["flush"] = 1.5;
  profile["busy"] = "adam differed by 70 % between rounds";
  write_all(file, profile.dump());
  std::filesystem::last_write_time(file, std::filesystem::last_write_time(file) - std::chrono::hours(75));
  const ProgramResult old = plan("config.json", {}, {});
  EXPECT_THAT(old.out, HasSubstr("(measured 3 days ago, " + file.string() + "; --measure takes it again)"));
  EXPECT_THAT(old.err, HasSubstr("busy when it was measured (adam differed by 70 % between rounds)"));

  // A run that is far from what that profile promises says so once, and goes on.
  EXPECT_THAT(succeed(train({"steps=14", "execution.overlap=none"})), HasSubstr("--measure measures it again"));
  const std::string metrics = read_all(at("run/metrics.jsonl"));
  const size_t told = metrics.find(R"("event":"prediction")");
  ASSERT_NE(told, std::string::npos);
  EXPECT_EQ(metrics.find(R"("event":"prediction")", told + 1), std::string::npos);

  EXPECT_THAT(succeed(train({"run.dir=again"}, {"--measure"})), HasSubstr("measuring this machine"));
  EXPECT_LT(json::parse(read_all(file)).at("disk").at("flush").get<double>(), 1.5);
  EXPECT_THAT(plan("config.json", {}, {}).out, HasSubstr("(measured just now, "));
  EXPECT_THAT(plan("config.json", {}, {"--measure"}).err, HasSubstr("measuring this machine"));
  EXPECT_EQ(plan("config.json", {}, {"--measure", "--machine", "h100"}).status, 2);
}

TEST_F(PlanTest, ARunOnAMeasuredMachineTellsWhatWasPredicted) {
  const ProgramResult r = plan("config.json", {"execution.overlap=forward"}, {"--json"});
  const double planned = json::parse(r.out).at("step_seconds");
  EXPECT_THAT(succeed(train({"execution.overlap=forward"})), HasSubstr("a step is predicted to take"));
  std::istringstream lines(read_all(at("run/metrics.jsonl")));
  std::string line;
  std::getline(lines, line);
  EXPECT_NEAR(json::parse(line).at("predicted_seconds").get<double>() / planned, 1, 1e-3);
}

TEST_F(PlanTest, ARunIsPlannedForTheMachineThatIsNamed) {
  const ProgramResult r = plan("config.json", {"execution.overlap=forward", "execution.keep_graphs=auto"}, {"--json", "--machine", "rtx4090-64g"});
  const double planned = json::parse(r.out).at("step_seconds");
  const Words set{"execution.overlap=forward", "execution.keep_graphs=auto"};
  EXPECT_THAT(succeed(train(set, {"--machine", "rtx4090-64g"})), HasSubstr("on rtx4090-64g (assumed rates)"));
  EXPECT_FALSE(std::filesystem::exists(at("cache")));  // this one is not measured
  const std::string metrics = read_all(at("run/metrics.jsonl"));
  EXPECT_NEAR(json::parse(metrics.substr(0, metrics.find('\n'))).at("predicted_seconds").get<double>() / planned, 1, 0.05);
  succeed(train({"run.dir=plain"}));
  EXPECT_EQ(inspect("run").at("weights_xxh3"), inspect("plain").at("weights_xxh3"));
  expect_refused(train({"run.dir=no"}, {"--machine", "rtx4091"}), 2, {"neither a file nor a built-in machine"});
}

// What copies both ways reach together grows with the link that a config asks about.
TEST_F(PlanTest, CopiesBothWaysAreABoundOfTheirOwn) {
  write_all(at("link.json"), R"({"disk": {"read": "6GB/s", "write": "3GB/s"}, "copy": {"h2d": "10GB/s", "d2h": "10GB/s", "both": "12GB/s"},
    "dram": "60GB/s", "adam": {"rate": "2Gparam/s"}, "compute": {"rate": "100TFLOP/s", "memory_rate": "1TB/s"}, "memory": {"runtime": "512MiB"}})");
  const auto planned = [&](const Words& set) { return json::parse(plan("config.json", set, {"--machine", "link.json", "--json"}).out); };
  const json p = planned({}), faster = planned({"machine.links.h2d=20GB/s", "machine.links.d2h=20GB/s"});
  const double copied = p.at("bytes_per_step").at("h2d").get<double>() + p.at("bytes_per_step").at("d2h").get<double>();
  ASSERT_GT(copied, 0);
  EXPECT_NEAR(p.at("bounds").at("copies").get<double>() / (copied / 12e9), 1, 1e-9);
  EXPECT_NEAR(faster.at("bounds").at("copies").get<double>() / (copied / 24e9), 1, 1e-9);
}

TEST_F(PlanTest, WithoutAGpuItCannotBeMeasured) {
  if (std::filesystem::exists("/proc/driver/nvidia/version")) GTEST_SKIP() << "this machine may have a GPU";
  expect_refused({"plan", "config.json", "--set", "machine.device=cuda"}, 2, {"machine.device is \"cuda\"", "\"cpu\"", "--machine"});
  EXPECT_FALSE(std::filesystem::exists(at("cache")));
  EXPECT_EQ(plan("config.json", {"machine.device=cuda"}, {"--machine", "h100"}).status, 0);
}

TEST_F(PlanTest, AnOpenOverlapIsTheFastest) {
  const Words memory{"memory.host=400GiB", "memory.gpu=64GiB"};
  const double open = plan_json("big.json", memory).at("step_seconds");
  for (const char* overlap : {"none", "forward", "spread"}) {
    Words set = memory;
    set.push_back(std::string("execution.overlap=") + overlap);
    EXPECT_LE(open, 1.001 * plan_json("big.json", set).at("step_seconds").get<double>()) << overlap;
  }
}

TEST_F(PlanTest, BadInputIsRefused) {
  expect_refused({"plan", "config.json", "--machine", "rtx4091"}, 2,
                 {"neither a file nor a built-in machine", "rtx4090-64g"});
  expect_refused({"plan", "config.json", "--machine", "h100", "--sweep", "steps"}, 2, {"write key=value"});
  expect_refused({"plan", "config.json", "--machine", "h100", "--set", "model.path=null", "--set",
                  "model.sizes=Llama-9"},
                 2, {"Llama-3.1-8B"});
  expect_refused({"plan", "config.json", "--machine", "h100", "--set", "model.path=null", "--set",
                  "model.sizes={\"hidden_size\":64}"},
                 2, {"model.sizes: the key intermediate_size is missing"});
  expect_refused({"plan", "big.json", "--machine", "h100", "--set", "model.family=bert"}, 2,
                 {"llama, mistral"});
  expect_refused({"train", "big.json"}, 2, {"can only be planned"});
}

}  // namespace
}  // namespace sluice::apps
