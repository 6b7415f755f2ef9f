// Whole runs on a GPU; skipped without one. What they measure goes into the test's report.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/units.h"
#include "gpu/cuda_device.h"
#include "tests/engine/tiny_run.h"

namespace sluice::engine {
namespace {

using base::ErrorKind;
using offload::Durable;
using offload::Placement;
using offload::Tier;

class GpuTraining : public testing::Test {
 protected:
  void SetUp() override {
    const gpu::CudaUse use = gpu::can_use_cuda();
    if (!use.usable) GTEST_SKIP() << "no CUDA device: " << use.reason;
  }

  static TinyRun on_gpu() {
    TinyRun run;
    run.device = gpu::DeviceKind::cuda;
    run.clip = kTinyClip;
    run.accumulation = 2;
    run.poison = false;
    return run;
  }
  static void expect_same(const TinyResult& got, const TinyResult& expected) {
    EXPECT_EQ(got.losses, expected.losses);
    EXPECT_EQ(got.norms, expected.norms);
    EXPECT_EQ(got.eval_losses, expected.eval_losses);
    EXPECT_EQ(got.digest.weights, expected.digest.weights);
    EXPECT_EQ(got.digest.state, expected.digest.state);
  }
};

struct Tiers {
  Tier weights, state;
  Durable durable;
};
const Tiers kTiers[] = {{Tier::none, Tier::none, Durable::checkpoint}, {Tier::none, Tier::cpu, Durable::checkpoint},
                        {Tier::cpu, Tier::cpu, Durable::step},         {Tier::cpu, Tier::nvme, Durable::step},
                        {Tier::nvme, Tier::cpu, Durable::step},        {Tier::nvme, Tier::nvme, Durable::step},
                        {Tier::none, Tier::nvme, Durable::step}};
constexpr Placement kPlacements[] = {Placement::none, Placement::forward, Placement::backward, Placement::spread};

TEST_F(GpuTraining, EveryTierAndPlacementGivesTheSameBits) {
  for (const char* model : {"tied", "untied", "gpt2_hub"}) {
    TinyRun run = on_gpu();
    run.model = model;
    const TinyResult expected = run_tiny(run);
    for (const Tiers& tiers : kTiers)
      for (const Placement placement : kPlacements)
        for (const bool poison : {false, true}) {
          if (poison && placement != Placement::spread) continue;
          SCOPED_TRACE(fmt::format("{} {} {} {}", model, offload::to_string(tiers.weights), offload::to_string(tiers.state),
                                   offload::to_string(placement)));
          run.weights = tiers.weights, run.state = tiers.state, run.durable = tiers.durable;
          run.placement = placement;
          run.poison = poison;
          expect_same(run_tiny(run), expected);
          if (HasFailure()) return;
        }
  }
}

TEST_F(GpuTraining, TwoRunsAndAResumedOneGiveTheSameBits) {
  TinyRun run = on_gpu();
  run.weights = run.state = Tier::cpu;
  run.durable = Durable::step;
  run.eval_every = 2;
  const TinyResult first = run_tiny(run);
  EXPECT_FALSE(first.eval_losses.empty());
  expect_same(run_tiny(run), first);
  run.stops = {1, 3};
  expect_same(run_tiny(run), first);
}

TEST_F(GpuTraining, KeptWeightsAndGraphsAndHostBoundariesGiveTheSameBitsInEveryType) {
  for (const offload::Schema schema : {offload::Schema::bf16, offload::Schema::fp16, offload::Schema::fp32}) {
    SCOPED_TRACE(static_cast<int>(schema));
    TinyRun run = on_gpu();
    run.model = schema == offload::Schema::fp32 ? "tied_fp32" : "tied";
    run.schema = schema;
    const TinyResult expected = run_tiny(run);
    run.weights = Tier::cpu, run.state = Tier::cpu, run.durable = Durable::step;
    run.keep_weights = 1;
    expect_same(run_tiny(run), expected);
    run.keep_weights = 0, run.keep_graphs = 2;
    expect_same(run_tiny(run), expected);
    run.keep_graphs = 0, run.host_boundaries = true, run.poison = true;
    expect_same(run_tiny(run), expected);
  }
}

// Some blocks are updated on the GPU, the others on the host, in one step.
TEST_F(GpuTraining, ResidentBlocksGiveTheSameBits) {
  for (const char* model : {"tied", "untied"}) {
    TinyRun run = on_gpu();
    run.model = model;
    const TinyResult expected = run_tiny(run);
    for (const Tier tier : {Tier::cpu, Tier::nvme})
      for (const uint32_t blocks : {1u, 2u, 3u}) {
        SCOPED_TRACE(fmt::format("{} {} {} blocks", model, offload::to_string(tier), blocks));
        run.weights = run.state = tier;
        run.resident_blocks = blocks;
        run.placement = blocks % 2 == 0 ? Placement::none : Placement::forward;
        run.poison = blocks == 2;
        const TinyResult got = run_tiny(run);
        expect_same(got, expected);
        EXPECT_LE(got.device_peak, got.device_planned);
      }
  }
}

TEST_F(GpuTraining, KernelsThatVaryStillTrain) {
  TinyRun run = on_gpu();
  run.weights = run.state = Tier::cpu;
  const TinyResult fixed = run_tiny(run);
  run.adjust = [](TrainerOptions& o) { o.runtime.deterministic = false; };
  const TinyResult varying = run_tiny(run), again = run_tiny(run);
  for (size_t i = 0; i < fixed.losses.size(); ++i) EXPECT_NEAR(varying.losses[i] / fixed.losses[i], 1, 2e-2);
  RecordProperty("two_runs_equal_without_determinism", varying.digest.weights == again.digest.weights ? "yes" : "no");
}

TEST_F(GpuTraining, LossesFollowTheEmulatedDevice) {
  TinyRun run = on_gpu();
  const TinyResult gpu = run_tiny(run);
  run.device = gpu::DeviceKind::cpu;
  const TinyResult cpu = run_tiny(run);
  for (size_t i = 0; i < gpu.losses.size(); ++i) EXPECT_NEAR(gpu.losses[i] / cpu.losses[i], 1, 2e-2) << i;
}

TEST_F(GpuTraining, ThePeakStaysInThePlanAndACapEmulatesASmallGpu) {
  for (const Tier tier : {Tier::cpu, Tier::none}) {
    TinyRun run = on_gpu();
    run.weights = run.state = tier;
    const TinyResult roomy = run_tiny(run);
    EXPECT_LE(roomy.device_peak, roomy.device_planned);
    const std::string name = offload::to_string(tier);
    RecordProperty(name + "_planned_bytes", fmt::format("{}", roomy.device_planned));
    RecordProperty(name + "_peak_bytes", fmt::format("{}", roomy.device_peak));
    RecordProperty(name + "_held_bytes", fmt::format("{}", roomy.device_held));
    run.device_memory = roomy.device_planned + (64 << 20);  // the allocator's segments
    expect_same(run_tiny(run), roomy);
    run.device_memory = roomy.device_planned / 2;
    try {
      run_tiny(run);
      FAIL() << "half of the need was accepted";
    } catch (const base::Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::device_memory) << error.what();
    }
  }
}

}  // namespace
}  // namespace sluice::engine
