#include "configs/machine_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "base/error.h"
#include "configs/rate_codec.h"

namespace sluice::configs {
namespace {

using offload::Machine;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Rate, ReadsPrefixesAndPlainNumbers) {
  EXPECT_EQ(parse_rate("6.5GB/s", "B/s"), 6.5e9);
  EXPECT_EQ(parse_rate("6.5 GB/s", "B/s"), 6.5e9);
  EXPECT_EQ(parse_rate("150TFLOP/s", "FLOP/s"), 150e12);
  EXPECT_EQ(parse_rate("20B/s", "B/s"), 20);
  EXPECT_EQ(parse_rate("3kparam/s", "param/s"), 3e3);
  EXPECT_EQ(rate("B/s").read(Json(1e9)), 1e9);
  for (const char* bad : {"", "GB/s", "6.5GB", "6.5", "6.5XB/s", "-1GB/s", "0GB/s", "nanGB/s", "1e999GB/s",
                          "6.5 G B/s", "6.5GFLOP/s"})
    EXPECT_EQ(parse_rate(bad, "B/s"), std::nullopt) << bad;
}

TEST(Rate, WritesWhatItReads) {
  for (const double value : {1.0, 999.0, 6.5e9, 150e12, 2.2e9, 1e15, 3.25e6})
    EXPECT_EQ(parse_rate(format_rate(value, "B/s"), "B/s"), value) << format_rate(value, "B/s");
  EXPECT_EQ(format_rate(6.5e9, "B/s"), "6.5GB/s");
}

TEST(MachineProfile, BuiltInOnesHaveEveryRateAndAreAssumed) {
  std::set<std::string> names;
  for (const Machine& m : builtin_machines()) {
    SCOPED_TRACE(m.name);
    names.insert(m.name);
    EXPECT_TRUE(m.assumed);
    for (const double r : {m.disk_read, m.disk_write, m.disk_mixed, m.h2d, m.d2h, m.dram, m.adam, m.compute,
                           m.device_memory_rate})
      EXPECT_GT(r, 0);
    EXPECT_GT(m.gpu_bytes, 0u);
    EXPECT_GT(m.host_bytes, 0u);
    EXPECT_LE(m.adam * offload::kAdamBytes, m.dram);
  }
  EXPECT_EQ(names, (std::set<std::string>{"rtx4090-64g", "rtx4090-128g", "rtx3090-64g", "a100-40g", "h100",
                                          "h200"}));
}

TEST(MachineProfile, AFileHoldsAllOfAMachine) {
  for (const Machine& m : builtin_machines()) {
    const Json written = machine_json(m);
    EXPECT_EQ(machine_json(parse_machine(written.dump(2), "profile.json")), written);
  }
  const auto file =
      std::filesystem::temp_directory_path() / ("sluice_machine_" + std::to_string(getpid()) + ".json");
  write_machine(builtin_machines()[0], file);
  EXPECT_EQ(machine_json(find_machine(file.string())), machine_json(builtin_machines()[0]));
  std::filesystem::remove(file);
}

TEST(MachineProfile, AMeasuredGpuIsReadAsItWasWritten) {
  Machine m = builtin_machines()[0];
  m.assumed = false;
  m.copy_both = 45e9;
  m.enqueue = 6.5e-6;
  m.runtime_bytes = 612 << 20;
  const Machine read = parse_machine(machine_json(m).dump(), "profile.json");
  EXPECT_EQ(read.copy_both, m.copy_both);
  EXPECT_EQ(read.enqueue, m.enqueue);
  EXPECT_EQ(read.runtime_bytes, m.runtime_bytes);
  EXPECT_EQ(parse_machine(R"({"copy": {"h2d": "25GB/s"}})", "old.json").copy_both, 0);
}

TEST(MachineProfile, WhatIsLeftOutIsUnknownAndTheNameIsTheFiles) {
  const Machine m = parse_machine(R"({"disk": {"read": "2GB/s"}})", "folder/my-box.json");
  EXPECT_EQ(m.name, "my-box");
  EXPECT_EQ(m.disk_read, 2e9);
  EXPECT_EQ(m.disk_write, 0);
  EXPECT_FALSE(m.assumed);
}

TEST(MachineProfile, BadOnesSayWhereAndWhatIsAllowed) {
  const auto message = [](const char* text, const char* part) {
    EXPECT_THAT([&] { parse_machine(text, "p.json"); }, ThrowsMessage<base::Error>(HasSubstr(part)));
  };
  message("{\n\"disk\": {\"raed\": \"1GB/s\"}}",
          "p.json:2: unknown key \"disk.raed\" in a machine profile; the nearest known key is \"disk.read\"");
  message(R"({"disk": {"read": "fast"}})",
          "disk.read = \"fast\": not allowed; allowed: a rate above 0 such as \"12GB/s\"");
  message(R"({"disk": {"read": -1}})", "not allowed");
  message(R"({"disk": 3})", "a section of keys in braces is needed");
  message("[]", "a section of keys in braces is needed");
  message("{", "p.json:1");
  EXPECT_THAT([] { find_machine("rtx4091"); },
              ThrowsMessage<base::Error>(HasSubstr("built-in ones are rtx4090-64g, rtx4090-128g")));
}

}  // namespace
}  // namespace sluice::configs
