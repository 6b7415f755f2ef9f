// A GPU as `sluice plan` measures it; skipped without one. The rates go into the test's report.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/rounds.h"
#include "engine/known_models.h"
#include "engine/machine_measure.h"
#include "gpu/cuda_device.h"

namespace sluice::engine {
namespace {

using offload::Machine;

class GpuMeasure : public testing::Test {
 protected:
  void SetUp() override {
    const gpu::CudaUse use = gpu::can_use_cuda();
    if (!use.usable) GTEST_SKIP() << "no CUDA device: " << use.reason;
    options_.config = model_of_sizes("llama", "Llama-3.2-1B");
    options_.micro_batch = 4;
    options_.sequence = 1024;
    options_.gpu = gpu::identify_cuda();
  }
  MeasureOptions options_;
};

TEST_F(GpuMeasure, RatesAreThoseOfAGpuAndTakeAFewSeconds) {
  const double begin = base::monotonic_seconds();
  const Machine m = measure_machine(options_);
  const double seconds = base::monotonic_seconds() - begin;
  const auto report = [&](const char* what, double value) { RecordProperty(what, fmt::format("{:.4g}", value)); };
  report("seconds", seconds);
  report("compute", m.compute);
  report("h2d", m.h2d);
  report("d2h", m.d2h);
  report("copy_both", m.copy_both);
  report("copy_latency", m.copy_latency);
  report("enqueue", m.enqueue);
  report("device_memory_rate", m.device_memory_rate);
  report("runtime_bytes", static_cast<double>(m.runtime_bytes));
  EXPECT_LT(seconds, 20);
  EXPECT_GT(m.compute, 1e12);
  EXPECT_LT(m.compute, 1e16);
  for (const double rate : {m.h2d, m.d2h}) {
    EXPECT_GT(rate, 1e8);
    EXPECT_LT(rate, 1e12);
  }
  EXPECT_GE(m.copy_both, std::max(m.h2d, m.d2h));
  EXPECT_LT(m.copy_both, 1.1 * (m.h2d + m.d2h));
  EXPECT_GT(m.device_memory_rate, m.copy_both);
  EXPECT_LT(m.enqueue, 1e-3);
  EXPECT_LT(m.copy_latency, 1e-2);
  EXPECT_GT(m.runtime_bytes, 32u << 20);
  EXPECT_EQ(m.compute_cores, 0);
}

// A run in the same process finds the device as it was.
TEST_F(GpuMeasure, NothingOfItStaysOnTheDevice) {
  options_.seconds = 0.03;
  (void)measure_machine(options_);
  const gpu::MemoryStats stats = gpu::make_cuda_device({})->memory();
  EXPECT_EQ(stats.arenas, 0u);
  EXPECT_EQ(stats.temporaries, 0u);
  EXPECT_EQ(stats.held_peak, 0u);
}

TEST_F(GpuMeasure, TheDeviceIsNamedWithItsDriver) {
  EXPECT_TRUE(options_.gpu.starts_with(gpu::can_use_cuda().reason + ", ")) << options_.gpu;
  EXPECT_NE(options_.gpu.find("driver for CUDA "), std::string::npos) << options_.gpu;
}

}  // namespace
}  // namespace sluice::engine
