#include "engine/run_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/known_models.h"

namespace sluice::engine {
namespace {

using offload::Tier;

RunPlanOptions options_for(const char* model) {
  RunPlanOptions o;
  o.config = model_of_sizes("llama", model);
  o.trainer.micro_batch = 1;
  o.trainer.accumulation = 8;
  o.trainer.sequence = 4096;
  o.trainer.plan.placement = offload::Placement::spread;
  offload::Machine& m = o.machine;
  m.name = "test";
  m.disk_read = 6.5e9;
  m.disk_write = 3e9;
  m.disk_mixed = 7e9;
  m.h2d = m.d2h = 25e9;
  m.dram = 65e9;
  m.adam = 2.2e9;
  m.compute = 150e12;
  return o;
}

uint64_t bytes(const RunPlan& run, const std::string& place, const std::string& purpose) {
  for (const MemoryRow& row : run.memory)
    if (row.place == place && row.purpose == purpose) return row.bytes;
  return 0;
}

TEST(RunPlan, CoarserTilesChangeLittle) {
  RunPlanOptions o = options_for("Llama-3.1-8B");
  const RunPlan fine = plan_run(o);
  EXPECT_EQ(fine.simulated, nullptr);
  o.most_tiles = 2000;
  const RunPlan coarse = plan_run(o);
  ASSERT_NE(coarse.simulated, nullptr);
  EXPECT_LT(coarse.plan.ops.size(), fine.plan.ops.size() * 3 / 5);
  EXPECT_NEAR(coarse.simulation.step_seconds / fine.simulation.step_seconds, 1, .01);
  EXPECT_EQ(bytes(coarse, "gpu", "weights at work"), bytes(fine, "gpu", "weights at work"));
  EXPECT_EQ(bytes(coarse, "host", "optimizer state"), bytes(fine, "host", "optimizer state"));
  EXPECT_EQ(bytes(coarse, "disk", "slots"), bytes(fine, "disk", "slots"));
  // Rings that hold the model are a little larger: a coarse tile's rest in every block.
  EXPECT_GE(bytes(coarse, "host", "gradients"), bytes(fine, "host", "gradients"));
  EXPECT_LT(static_cast<double>(bytes(coarse, "host", "gradients")),
            1.1 * static_cast<double>(bytes(fine, "host", "gradients")));
}

// Pools that a config gives are of the run's tiles, however coarse the tiles of the simulation.
TEST(RunPlan, GivenPoolsTakeTheSameWithCoarserTiles) {
  for (const auto placement : {offload::Placement::forward, offload::Placement::spread}) {
    RunPlanOptions o = options_for("Llama-3.1-8B");
    o.trainer.plan.placement = placement;
    o.trainer.store.durable = offload::Durable::step;
    o.memory_only = true;
    const auto weights = [&](uint32_t pool, uint32_t most_tiles) {
      o.trainer.plan.pools.weights = pool;
      o.most_tiles = most_tiles;
      return bytes(plan_run(o), "host", "weights");
    };
    for (const uint32_t pool : {16u, 64u, 500u, 100000u}) {
      const auto fine = static_cast<double>(weights(pool, 6000));
      EXPECT_NEAR(static_cast<double>(weights(pool, 500)) / fine, 1, pool < 100000 ? 0 : .2) << pool;  // the last one is more than there is
      EXPECT_LE(fine, (pool + 16.) * 4 * (1 << 20)) << pool;
    }
  }
}

TEST(RunPlan, StateOnADeviceNeedsNoHost) {
  RunPlanOptions o = options_for("SmolLM2-135M");
  o.trainer.plan.weights = o.trainer.plan.state = Tier::none;
  o.trainer.store.durable = offload::Durable::checkpoint;
  o.machine.device_memory_rate = 1e12;
  const RunPlan run = plan_run(o);
  EXPECT_EQ(total(run.memory, "host"), bytes(run, "host", "tokens"));
  // 16 B per parameter: weights, wire gradients, and state.
  EXPECT_GT(total(run.memory, "gpu"), 16 * run.layout->parameters());
  o.machine.device_memory_rate = 0;  // emulated: Adam runs on the cores
  EXPECT_GT(plan_run(o).simulation.step_seconds, run.simulation.step_seconds);
}

// Beside the budget is what CUDA takes for itself; of the budget, what the streams do.
TEST(RunPlan, OnAGpuStreamsTakeMemoryToo) {
  RunPlanOptions o = options_for("SmolLM2-135M");
  o.memory_only = true;
  const RunPlan emulated = plan_run(o);
  o.gpu = true;
  const RunPlan gpu = plan_run(o);
  EXPECT_EQ(bytes(gpu, "gpu", "streams"), 16u << 20);
  EXPECT_EQ(total(gpu.memory, "gpu"), total(emulated.memory, "gpu") + (16u << 20));
}

TEST(RunPlan, WhatAGpuTakesForItselfIsTheMeasuredFigureWhereThereIsOne) {
  RunPlanOptions o = options_for("SmolLM2-135M");
  o.memory_only = o.gpu = true;
  const auto runtime = [&] {
    const std::vector<MemoryRow> rows = plan_run(o).memory;
    return *std::ranges::find(rows, "runtime", &MemoryRow::purpose);
  };
  EXPECT_TRUE(runtime().estimated);
  o.machine.runtime_bytes = 123 << 20;
  EXPECT_EQ(runtime().bytes, 123u << 20);
  EXPECT_TRUE(runtime().measured && !runtime().estimated && runtime().beside);
}

TEST(RunPlan, MemoryAloneIsTheSameWithoutASimulation) {
  RunPlanOptions o = options_for("Llama-3.2-1B");
  const RunPlan full = plan_run(o);
  o.memory_only = true;
  const RunPlan memory = plan_run(o);
  EXPECT_EQ(memory.simulation.periods, 0u);
  for (const char* place : {"gpu", "host", "disk"})
    EXPECT_EQ(total(memory.memory, place), total(full.memory, place));
}

}  // namespace
}  // namespace sluice::engine
