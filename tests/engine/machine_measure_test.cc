// A machine as it is measured: with the emulated device, and with one that behaves as a GPU does to its caller and has known links.
#include "engine/machine_measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/units.h"
#include "engine/known_models.h"
#include "engine/run_plan.h"
#include "gpu/emulated_device.h"

namespace sluice::engine {
namespace {

using namespace base;
using offload::Machine;
using testing::HasSubstr;
using testing::Not;

MeasureOptions small_options() {
  MeasureOptions o;
  o.config = model_of_sizes("llama", {{"hidden_size", 512}, {"intermediate_size", 1024}, {"num_hidden_layers", 2}, {"num_attention_heads", 8},
                                      {"num_key_value_heads", 4}, {"vocab_size", 2048}});
  o.sequence = 64;
  o.compute_threads = o.optimizer_threads = 1;
  o.seconds = 0.03;
  return o;
}

// The links' rates are not exceeded, whatever else the machine does; how near they come depends on that.
TEST(MachineMeasure, ADeviceWithMemoryOfItsOwnHasLinksMemoryAndCostsOfItsOwn) {
  constexpr double kIn = 2e9, kOut = 1e9;
  const auto device = gpu::make_emulated_device({.memory = 1_GiB, .opaque = true, .compute_threads = 1, .h2d = kIn, .d2h = kOut});
  MeasureOptions o = small_options();
  o.gpu = "a GPU of tests";
  const Machine m = measure_machine(o, *device);
  EXPECT_THAT(m.name, HasSubstr(", a GPU of tests"));
  EXPECT_FALSE(m.assumed);
  EXPECT_GT(m.h2d, 0);
  EXPECT_LT(m.h2d, 1.05 * kIn);
  EXPECT_GT(m.d2h, 0);
  EXPECT_LT(m.d2h, 1.05 * kOut);
  EXPECT_GE(m.copy_both, std::max(m.h2d, m.d2h));
  EXPECT_LT(m.copy_both, 1.05 * (kIn + kOut));
  EXPECT_GT(m.enqueue, 0);
  EXPECT_LT(m.enqueue, 1);
  EXPECT_GE(m.copy_latency, 0);
  for (const double rate : {m.dram, m.adam, m.compute, m.device_memory_rate}) EXPECT_GT(rate, 0);
  for (const double cores : {m.compute_cores, m.update_cores, m.h2d_cores, m.d2h_cores}) EXPECT_EQ(cores, 0);
  EXPECT_EQ(m.disk_read, 0);  // no folder was given
  EXPECT_EQ(m.gpu_bytes, 1_GiB);
  EXPECT_GT(m.host_bytes, 0u);
  EXPECT_EQ(device->memory().arenas, 0u);
  EXPECT_EQ(device->memory().temporaries, 0u);

  RunPlanOptions run;  // nothing that a plan for a GPU needs is left out
  run.config = o.config;
  run.machine = m;
  run.gpu = true;
  run.trainer.sequence = 64;
  run.trainer.plan.weights = run.trainer.plan.state = offload::Tier::cpu;
  run.trainer.plan.resident_blocks = 1;
  run.trainer.store.durable = offload::Durable::checkpoint;
  EXPECT_GT(plan_run(run).simulation.step_seconds, 0);
}

TEST(MachineMeasure, TheEmulatedDeviceSharesTheHostsCoresAndMemory) {
  const Machine m = measure_machine(small_options());
  EXPECT_THAT(m.name, Not(HasSubstr("GPU")));
  for (const double rate : {m.h2d, m.d2h, m.dram, m.adam, m.compute}) EXPECT_GT(rate, 0);
  EXPECT_EQ(m.compute_cores, 1);
  EXPECT_GT(m.h2d_cores, 0);
  EXPECT_EQ(m.device_memory_rate, 0);
  EXPECT_EQ(m.copy_both, 0);
  EXPECT_EQ(m.runtime_bytes, 0u);
}

TEST(MachineMeasure, AnotherGpuOrDriverIsMeasuredAnew) {
  MeasureOptions o = small_options();
  const std::string emulated = machine_key(o);
  EXPECT_EQ(machine_key(o), emulated);
  o.deterministic = false;  // of a GPU's kernels
  EXPECT_EQ(machine_key(o), emulated);
  o.gpu = "NVIDIA H200, 139.8 GiB, driver for CUDA 13.0";
  const std::string varying = machine_key(o);
  EXPECT_NE(varying, emulated);
  o.deterministic = true;
  const std::string h200 = machine_key(o);
  EXPECT_NE(h200, varying);
  o.gpu = "NVIDIA H200, 139.8 GiB, driver for CUDA 13.1";
  EXPECT_NE(machine_key(o), h200);
}

}  // namespace
}  // namespace sluice::engine
