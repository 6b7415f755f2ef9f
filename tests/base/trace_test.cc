#include "base/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "tests/paths.h"

namespace sluice::base {
namespace {

nlohmann::json written(const Trace& trace) {
  const std::filesystem::path file =
      binary_dir() / ("trace-test-" + std::to_string(getpid()) + ".json");
  trace.write(file);
  nlohmann::json json = nlohmann::json::parse(std::ifstream(file));
  std::filesystem::remove(file);
  return json;
}

TEST(Trace, WritesOneRowPerName) {
  Trace trace;
  trace.add("disk", "read", 0.5, 0.75, 4096);
  trace.add("compute", "forward \"0\"\\\n", 1, 2);
  trace.add("disk", "write", 0.75, 1);
  const nlohmann::json events = written(trace).at("traceEvents");
  std::map<int, std::string> rows;
  std::vector<nlohmann::json> spans;
  for (const auto& event : events) {
    if (event.at("ph") == "X") spans.push_back(event);
    if (event.at("name") == "thread_name") rows[event.at("tid")] = event.at("args").at("name");
  }
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows.at(spans[0].at("tid")), "disk");
  EXPECT_EQ(rows.at(spans[1].at("tid")), "compute");
  EXPECT_EQ(spans[2].at("tid"), spans[0].at("tid"));
  EXPECT_EQ(spans[0].at("ts"), 500000.0);
  EXPECT_EQ(spans[0].at("dur"), 250000.0);
  EXPECT_EQ(spans[0].at("args").at("bytes"), 4096);
  EXPECT_EQ(spans[1].at("name"), "forward \"0\"\\\n");
}

TEST(Trace, EmptyAndConcurrent) {
  Trace trace;
  EXPECT_EQ(written(trace).at("traceEvents").size(), 1u);
  std::thread other([&] {
    for (int i = 0; i < 100; ++i) trace.add("a", "x", trace.now(), trace.now());
  });
  for (int i = 0; i < 100; ++i) trace.add("b", "y", trace.now(), trace.now());
  other.join();
  EXPECT_EQ(written(trace).at("traceEvents").size(), 1u + 2 + 200);
}

TEST(Trace, AnUnwritableFileIsAnError) {
  EXPECT_THROW(Trace().write("/nonexistent/trace.json"), Error);
}

}  // namespace
}  // namespace sluice::base
