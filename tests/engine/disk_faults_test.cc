// A run on a disk that fails: what passes changes no bit, what lasts ends the run with the store unharmed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "io/probe.h"
#include "io/uring_queue.h"
#include "tests/engine/tiny_run.h"

namespace sluice::engine {
namespace {

using offload::Placement;

class DiskFaults : public ::testing::TestWithParam<io::QueueKind> {
 protected:
  void SetUp() override {
    if (GetParam() != io::QueueKind::uring) return;
    if (const io::UringStatus status = io::probe_uring(); !status.usable()) GTEST_SKIP() << status.explanation();
  }
  static TinyRun streamed(Placement placement) {
    TinyRun run;
    run.weights = run.state = offload::Tier::nvme;
    run.durable = offload::Durable::step;
    run.placement = placement;
    run.clip = kTinyClip;
    run.queue = GetParam();
    run.steps = 4;
    return run;
  }
  static void expect_same(const StateDigest& a, const StateDigest& b) {
    EXPECT_EQ(a.weights, b.weights);
    EXPECT_EQ(a.state, b.state);
  }
};

using Alter = std::function<int64_t(io::IoOp op, uint64_t offset, int64_t result)>;

// Blocks of 64 KiB: a tile is many calls.
TrainerOptions with_faults(const TinyRun& run, const std::filesystem::path& dir, Alter alter) {
  TrainerOptions options = tiny_options(run, dir);
  options.runtime.queue.block_size = 64 << 10;
  options.runtime.queue.alter_result = std::move(alter);
  return options;
}

TEST_P(DiskFaults, WhatPassesChangesNoBit) {
  for (const Placement placement : {Placement::none, Placement::spread}) {
    TinyRun run = streamed(placement);
    const TinyResult clean = run_tiny(run);
    uint64_t calls = 0, faults = 0;
    run.adjust = [&](TrainerOptions& o) {
      o.runtime.queue.block_size = 64 << 10;
      o.runtime.queue.alter_result = [&](io::IoOp op, uint64_t, int64_t result) -> int64_t {
        if (op == io::IoOp::sync || ++calls % 3 != 0) return result;
        ++faults;
        const int64_t kinds[] = {-EAGAIN, -EINTR, std::min<int64_t>(result, 4096), std::min<int64_t>(result, 5000)};
        return kinds[calls / 3 % 4];
      };
    };
    const TinyResult faulty = run_tiny(run);
    EXPECT_GT(faults, 100u);
    EXPECT_EQ(faulty.losses, clean.losses);
    EXPECT_EQ(faulty.norms, clean.norms);
    expect_same(faulty.digest, clean.digest);
  }
}

TEST_P(DiskFaults, WhatLastsEndsTheRunAndTheStoreGoesOn) {
  const TinyRun run = streamed(Placement::spread);
  const TinyResult clean = run_tiny(run);
  int ended = 0;
  for (uint64_t nth = 1;; nth += nth < 20 ? 6 : nth / 2) {
    SCOPED_TRACE("call " + std::to_string(nth));
    const TemporaryFolder folder;
    const auto dir = folder.path / "run";
    uint64_t calls = 0;
    const auto failing = [&](io::IoOp op, uint64_t, int64_t result) -> int64_t {
      if (++calls < nth) return result;
      return op == io::IoOp::write ? -ENOSPC : -EIO;  // from here on, for good
    };
    bool created = false, failed = false;
    try {
      Trainer trainer(with_faults(run, dir, failing), {});
      trainer.create();
      created = true;
      trainer.run();
      trainer.finish();
    } catch (const base::Error& error) {
      failed = true;
      EXPECT_EQ(error.kind(), base::ErrorKind::disk) << error.what();
      EXPECT_NE(std::string(error.what()).find(dir.string()), std::string::npos) << error.what();
    }
    EXPECT_EQ(failed, calls >= nth);
    {
      const bool exists = offload::Store::exists(dir);
      EXPECT_TRUE(exists || !created);
      Trainer trainer(with_faults(run, dir, nullptr), {});
      if (exists)
        trainer.open();
      else
        trainer.create();
      trainer.run();
      trainer.finish();
    }
    expect_same(digest_of(run, dir), clean.digest);
    if (!failed) break;
    ended += created ? 1 : 0;
  }
  EXPECT_GE(ended, 3) << "too few faults met the training itself";
}

INSTANTIATE_TEST_SUITE_P(Queues, DiskFaults, ::testing::Values(io::QueueKind::threads, io::QueueKind::uring),
                         [](const auto& queue) { return std::string(queue.param == io::QueueKind::uring ? "uring" : "threads"); });

}  // namespace
}  // namespace sluice::engine
