// What is written about a run beside its steps, and the figures that follow.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "apps/report_page.h"
#include "apps/svg_bars.h"
#include "base/error.h"
#include "tests/paths.h"

namespace sluice::apps {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class RunRecordTest : public testing::Test {
 protected:
  RunRecordTest() : folder_((binary_dir() / "record-test-XXXXXX").string()) { folder_ = mkdtemp(folder_.data()); }
  ~RunRecordTest() override { fs::remove_all(folder_); }
  fs::path at(const char* name) const { return fs::path(folder_) / name; }
  std::string folder_;
};

RunMemory sample_memory() {
  RunMemory memory;
  memory.planned.rows = {{"gpu", "weights", 3 << 20, false, false, false},
                         {"gpu", "temporaries", 1 << 20, false, true, false},
                         {"gpu", "runtime", 500 << 20, true, false, true},
                         {"host", "pinned <set>", 8 << 20, false, false, false}};
  memory.planned.gpu_have = 8 << 20;
  memory.planned.host_have = 16 << 20;
  memory.peaks = MemoryPeaks{4 << 20, 8 << 20, {}};
  memory.peaks->process.resident_peak = 700 << 20;
  memory.peaks->process.locked = 123;
  return memory;
}

TEST_F(RunRecordTest, TheMemoryTableIsReadBack) {
  EXPECT_FALSE(read_run_memory(at("memory.json")));
  RunMemory memory = sample_memory();
  write_run_memory(memory, at("memory.json"));
  const RunMemory read = read_run_memory(at("memory.json")).value();
  ASSERT_EQ(read.planned.rows.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const engine::MemoryRow &a = read.planned.rows[i], &b = memory.planned.rows[i];
    EXPECT_EQ(std::tie(a.place, a.purpose, a.bytes, a.measured, a.estimated, a.beside), std::tie(b.place, b.purpose, b.bytes, b.measured, b.estimated, b.beside));
  }
  EXPECT_EQ(read.need("gpu"), 4u << 20);  // the context is beside the budget
  EXPECT_EQ(read.planned.host_have, 16u << 20);
  EXPECT_EQ(read.peaks->process.resident_peak, 700u << 20);
  EXPECT_EQ(read.peaks->process.locked, 123u);
  memory.peaks.reset();
  write_run_memory(memory, at("memory.json"));
  EXPECT_FALSE(read_run_memory(at("memory.json"))->peaks);
  std::ofstream(at("memory.json")) << R"({"rows": 3})";
  EXPECT_THROW(read_run_memory(at("memory.json")), base::Error);
}

TEST_F(RunRecordTest, StartsAreReadBackAndATornLineIsNoError) {
  EXPECT_TRUE(read_starts(at("starts.jsonl")).empty());
  append_start({0, 0, 1.5, 1e12, "a device", Ceilings{1, 2, 3, 4, 5}}, at("starts.jsonl"));
  append_start({7, 2, 0.5, 1e12, "a device", {}}, at("starts.jsonl"));
  std::ofstream(at("starts.jsonl"), std::ios::app) << R"({"step": 9, "ste)";
  const auto starts = read_starts(at("starts.jsonl"));
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(starts[0].ceilings->d2h, 4);
  EXPECT_EQ(starts[1].step, 7u);
  EXPECT_EQ(starts[1].steps_lost, 2u);
  EXPECT_FALSE(starts[1].ceilings);
  std::ofstream(at("starts.jsonl"), std::ios::app) << "\n{}\n";
  EXPECT_THROW(read_starts(at("starts.jsonl")), base::Error);
}

std::map<std::string, std::string> figures(const RunRecord& run) {
  std::map<std::string, std::string> found;
  for (const Figure& f : run_figures(run)) found[f.name] = f.value;
  return found;
}

TEST_F(RunRecordTest, FiguresAreMediansWithoutTheFirstStep) {
  RunRecord run;
  for (uint64_t i = 1; i <= 21; ++i)
    run.metrics.steps.push_back({i,
                                 {{"step_seconds", i == 1 ? 100 : i == 21 ? 9 : 2}, {"predicted_seconds", 1.6}, {"tokens", 100}, {"tokens_per_s", 50},
                                  {"phase.forward", 0.5}, {"phase.optimizer", 0.25}, {"stall.compute", i == 1 ? 0 : 1}, {"stall.disk_state", i == 1 ? 0 : 1},
                                  {"bytes.disk_read", 1 << 30}, {"bytes_over_plan.disk_read", 1}, {"bandwidth.disk_read", 2e9}, {"flops.per_s", 3e12},
                                  {"flops.utilization", 0.6}, {"disk.write_p99", 0.02}, {"disk.retries", 1}, {"guessed", i > 1}, {"redone", i % 10 == 0},
                                  {"communication.seconds", 0.5}, {"communication.hidden", i == 1 ? 0 : 0.84}, {"bytes.net", 1 << 20},
                                  {"memory.resident", 1}, {"memory.gpu_peak", 4 << 20}}});
  run.starts = {{0, 0, 1, 1e12, "", {}}, {5, 3, 2, 1e12, "", Ceilings{2.5e9, 0, 0, 0, 0}}};
  run.memory = sample_memory();
  run.metrics.commits = {{10, 4, 3 << 20}, {20, 6, 5 << 20}};
  const auto f = figures(run);
  EXPECT_EQ(f.at("step"), "2 s median, 9 s for 95 %, 9 s at most");
  EXPECT_EQ(f.at("predicted"), "1.6 s; measured +25.0 %");
  EXPECT_THAT(f.at("made of"), HasSubstr("forward 0.5 s, beside them the optimizer 0.25 s"));
  EXPECT_THAT(f.at("compute stands still"), HasSubstr("waits for disk_state 13.6 %"));  // 20 of 147 s
  EXPECT_EQ(f.at("disk_read"), "1.00 GiB a step, 1 times the plan's; 2 GB/s while at work, 80 % of the measured 2.5");
  EXPECT_THAT(f.at("model FLOP per second"), HasSubstr("3 T, 60 %"));
  EXPECT_EQ(f.at("communication"), "1.00 MiB received a step by the first rank, 0.5 s in collectives, 80 % of them hidden by compute");
  EXPECT_THAT(f.at("disk requests"), HasSubstr("21 retried"));
  EXPECT_THAT(f.at("device memory, peak"), HasSubstr("+0.0 % of the plan's"));
  EXPECT_EQ(f.at("skipped, redone"), "0 steps skipped as not finite; 20 updated on a guess, 2 of them redone after a wrong one");
  EXPECT_THAT(f.at("commits"), HasSubstr("2; training stood still for 6 s each, which wrote 5.00 MiB"));
  EXPECT_EQ(f.at("written to disk"), "8.00 MiB in all, 8.00 MiB of it by commits of the state in memory, 3.90 KiB a token");  // of 2100
  EXPECT_THAT(f.at("starts"), HasSubstr("steps lost in all: 3"));
}

TEST_F(RunRecordTest, ThePageShowsTheMemory) {
  const std::string page = report_page({}, {{}, {}, sample_memory()});
  for (const char* text : {"<h2>Memory</h2>", "pinned &lt;set&gt;", "beside the total", "4.00 MiB of 8.00 MiB, at most 4.00 MiB", "700 MiB"})
    EXPECT_NE(page.find(text), std::string::npos) << text;
  EXPECT_EQ(report_page({}, {}).find("<h2>Memory</h2>"), std::string::npos);
}

TEST(SvgBars, NothingAtAllIsDrawnWithoutNonsense) {
  const std::string svg = svg_bars("t", {{"empty", {}, 0, 0}, {"zero", {{"a", 0}}, 0, 0}}, [](double v) { return std::to_string(v); });
  for (const char* bad : {"nan", "inf", "-"}) EXPECT_THAT(svg.substr(svg.find("<rect", svg.find("</text>"))), Not(HasSubstr(std::string("\"") + bad)));
}

}  // namespace
}  // namespace sluice::apps
