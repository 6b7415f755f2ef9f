// The page and the event file that `sluice report` makes of a run.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "apps/report_page.h"
#include "apps/svg_chart.h"
#include "apps/tensorboard.h"
#include "base/error.h"
#include "tests/paths.h"

namespace sluice::apps {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class ReportTest : public testing::Test {
 protected:
  ReportTest() : folder_((binary_dir() / "report-test-XXXXXX").string()) { folder_ = mkdtemp(folder_.data()); }
  ~ReportTest() override { fs::remove_all(folder_); }
  RunMetrics metrics(const std::string& text) {
    std::ofstream(fs::path(folder_) / "metrics.jsonl") << text;
    return read_metrics(fs::path(folder_) / "metrics.jsonl");
  }
  std::string folder_;
};

const std::string kLines =
    R"({"step":1,"loss":3.5,"tokens":64,"step_seconds":2.0,"predicted_seconds":null,"stall":{"compute":1.0,"disk_state":0.5},)"
    R"("bytes":{"disk_read":1000000000,"disk_write":500000000},"skipped":false,"redone":true})"
    "\n"
    R"({"step":1,"eval_loss":3.25,"eval_perplexity":25.8})"
    "\n"
    R"({"step":1,"event":"drift","text":"lane <b> is slow"})"
    "\n"
    R"({"step":2,"loss":3.0,"tokens":64,"step_seconds":2.0,"stall":{},"bytes":{"disk_read":0},"skipped":false,"redone":false})"
    "\n";

TEST_F(ReportTest, MetricsAreReadBackAndATornLastLineIsNoError) {
  const RunMetrics m = metrics(kLines + R"({"step":3,"lo)");
  ASSERT_EQ(m.steps.size(), 2u);
  EXPECT_EQ(m.steps[0].values.at("stall.disk_state"), 0.5);
  EXPECT_EQ(m.steps[0].values.at("redone"), 1);
  EXPECT_FALSE(m.steps[0].values.contains("predicted_seconds"));
  ASSERT_EQ(m.evaluations.size(), 1u);
  EXPECT_EQ(m.evaluations[0].loss, 3.25);
  ASSERT_EQ(m.events.size(), 1u);
  EXPECT_EQ(m.events[0].text, "lane <b> is slow");
  EXPECT_THROW(metrics(R"({"loss":1})" "\n" + kLines), base::Error);
  EXPECT_THROW(metrics("nonsense\n" + kLines), base::Error);
  EXPECT_THROW(read_metrics("/nowhere/metrics.jsonl"), base::Error);
}

TEST_F(ReportTest, ThePageHoldsTheRunAndNothingFromElsewhere) {
  configs::RunConfig config;
  config.run.dir = "runs/a & b";
  const std::string page = report_page(config, {metrics(kLines), {}, {}});
  for (const char* text : {"a &amp; b", "3.5000 to 3.0000", "lane &lt;b&gt; is slow", "evaluation loss", "waits for disk_state", "128 in 4.0 s"})
    EXPECT_THAT(page, HasSubstr(text));
  for (const char* text : {"http://w", "https:", "<script", "src="}) {
    std::string rest = page;
    for (size_t at; (at = rest.find("http://www.w3.org/2000/svg")) != std::string::npos;) rest.erase(at, 26);  // a name, not a place
    EXPECT_THAT(rest, Not(HasSubstr(text)));
  }
}

TEST_F(ReportTest, ARunWithoutStepsHasAPageToo) {
  const std::string page = report_page({}, {metrics(""), {}, {}});
  EXPECT_THAT(page, HasSubstr("none yet"));
  EXPECT_THAT(page, HasSubstr("no data"));
}

TEST(SvgChart, DrawsEveryPointInsideTheFrameAndThinsLongLines) {
  Series line{"loss", {}};
  for (int i = 0; i < 100000; ++i) line.points.emplace_back(i, std::sin(i / 5000.0));
  line.points.emplace_back(100000, std::nan(""));
  const std::string svg = svg_chart({.title = "t", .x = "x", .y = "y"}, {line, {"one", {{5, 1e-9}}, true}, {"none", {}}});
  EXPECT_LT(svg.size(), 20000u);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  const size_t begin = svg.find("points=\"") + 8;
  for (const char* p = svg.c_str() + begin; *p != '"';) {
    double x = 0, y = 0;
    int used = 0;
    ASSERT_EQ(std::sscanf(p, "%lf,%lf %n", &x, &y, &used), 2);
    EXPECT_TRUE(x >= 0 && x <= 760 && y >= 0 && y <= 260) << x << " " << y;
    p += used;
  }
}

TEST(SvgChart, ConstantAndSinglePointsHaveAnAxis) {
  for (const double value : {0.0, 1.0, -3e6, 2e-9}) {
    const std::string svg = svg_chart({}, {{"c", {{1, value}}}});
    EXPECT_THAT(svg, HasSubstr("<polyline"));
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
  }
}

TEST(Tensorboard, Crc32cIsTheKnownOne) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
}

TEST_F(ReportTest, TheEventFileIsFramesOfTheRightLength) {
  write_tensorboard(fs::path(folder_) / "tb", metrics(kLines));
  std::ifstream in(fs::path(folder_) / "tb/events.out.tfevents.0.sluice", std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(in), {}};
  size_t at = 0, frames = 0;
  std::string all;
  while (at < file.size()) {
    uint64_t length = 0;
    ASSERT_LE(at + 16, file.size());
    std::memcpy(&length, file.data() + at, 8);
    ASSERT_LE(at + 16 + length, file.size());
    all += file.substr(at + 12, length);
    at += 16 + length;
    ++frames;
  }
  EXPECT_EQ(at, file.size());
  EXPECT_EQ(frames, 1 + 9u + 6u + 1u);
  for (const char* tag : {"brain.Event:2", "loss", "stall/disk_state", "eval_loss"}) EXPECT_THAT(all, HasSubstr(tag));
}

TEST_F(ReportTest, EventsHaveTheWallTimeOfTheirStep) {
  write_tensorboard(fs::path(folder_) / "tb", metrics(R"({"step":1,"time":1700000001.5,"loss":3.5})" "\n"
                                                      R"({"step":1,"time":1700000002.5,"eval_loss":3.25,"eval_perplexity":25.8})" "\n"
                                                      R"({"step":2,"time":1700000003.5,"loss":3.0})" "\n"));
  std::ifstream in(fs::path(folder_) / "tb/events.out.tfevents.0.sluice", std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(in), {}};
  std::vector<double> times;
  for (size_t at = 0; at < file.size();) {
    uint64_t length = 0;
    std::memcpy(&length, file.data() + at, 8);
    std::memcpy(&times.emplace_back(), file.data() + at + 13, 8);  // after the header and the key of field 1
    at += 16 + length;
  }
  EXPECT_EQ(times, (std::vector<double>{1700000001.5, 1700000001.5, 1700000003.5, 1700000002.5}));
  EXPECT_THAT(file, Not(HasSubstr("time")));
}

}  // namespace
}  // namespace sluice::apps
