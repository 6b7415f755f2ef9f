// The power goes at any moment: what was not flushed may be lost, torn or reordered. The store opens at the
// last step that was reported, or at the one in flight, never at a mixture.
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "io/power_cut.h"
#include "store_fixture.h"

namespace sluice::offload::test {
namespace {

constexpr uint64_t kSkipped = 3;
constexpr uint64_t kLastStep = 4;

struct Recorded {
  std::vector<size_t> reported;  // by step: events when it was reported
};

struct Cut {
  int world, drives;
};

// Over one rank and over several, in RUN/store and over several drives.
class PowerCutTest : public StoreTest, public ::testing::WithParamInterface<Cut> {
 protected:
  int world() const { return GetParam().world; }
  const Layout cut_layout = small_layout(Schema::bf16, {}, static_cast<uint32_t>(GetParam().world));

  StoreOptions options_at(const fs::path& root, io::FileObserver* observer = nullptr) const {
    StoreOptions o = options();
    o.run_dir = root / "run";
    o.observer = observer;
    for (int d = 0; d < GetParam().drives; ++d) {
      o.paths.push_back(root / ("nvme" + std::to_string(d)));
      fs::create_directories(o.paths.back());
    }
    return o;
  }
  // layout.json names the folders of the recorded run, which are not those of a state after a cut: there, as if they had been moved.
  void hide_drives() const {
    for (int d = 0; d < GetParam().drives; ++d) fs::rename(scratch.path() / ("nvme" + std::to_string(d)), scratch.path() / ("gone" + std::to_string(d)));
  }

  void on_all(const std::function<void(Ranks&)>& body) const { expect_no_errors(on_ranks(world(), body)); }

  // create, steps 1 and 2, a skip (3) after a guess was written, step 4, with a reopening before it.
  Recorded record(io::PowerCutRecorder& recorder) {
    Recorded recorded;
    const StoreOptions o = options_at(scratch.path(), &recorder);
    on_all([&](Ranks& ranks) {
      const auto report = [&] {
        if (ranks.rank() == 0) recorded.reported.push_back(recorder.events());
      };
      {
        const auto store = create(o, cut_layout, ranks);
        report();
        for (uint64_t step = 1; step <= 2; ++step) {
          train_step(*store, cut_layout, step, 0, ranks);
          report();
        }
        store->begin_writes();
        write_extents(*store, cut_layout, kSkipped, 0, ranks);
        store->skip(meta_of(kSkipped));
        report();
      }
      train_step(*Store::open(o, cut_layout, nullptr, ranks), cut_layout, kLastStep, 0, ranks);
      report();
    });
    hide_drives();
    return recorded;
  }

  void check(const io::PowerCutRecorder& recorder, const Recorded& recorded, size_t cut, uint64_t seed,
             const fs::path& target) {
    SCOPED_TRACE("cut " + recorder.describe(cut) + ", seed " + std::to_string(seed));
    recorder.materialise(cut, seed, target);
    const StoreOptions o = options_at(target);
    uint64_t reported = 0;  // steps + 1
    while (reported < recorded.reported.size() && recorded.reported[reported] <= cut) ++reported;
    if (!Store::exists(o.run_dir)) {
      EXPECT_EQ(reported, 0u);
      on_all([&](Ranks& ranks) { create(o, cut_layout, ranks); });
      expect_step(*read(o), 0);
      return;
    }
    std::atomic<uint64_t> step{0};
    on_all([&](Ranks& ranks) {
      const auto store = Store::open(o, cut_layout, nullptr, ranks);
      const uint64_t found = step = store->meta().step;
      expect_state(*store, found == kSkipped ? kSkipped - 1 : found, meta_of(found), 0, ranks.rank());
      train_step(*store, cut_layout, found + 1, 1, ranks);
    });
    EXPECT_TRUE(step + 1 == reported || step == reported) << "at step " << step << ", reported " << reported << " states";
    expect_state(*read(o), step + 1, meta_of(step + 1), 1);
  }
};

TEST_P(PowerCutTest, SomeMomentsBySeed) {
  options_at(scratch.path());  // the drives are there before
  io::PowerCutRecorder recorder(scratch.path());
  const Recorded recorded = record(recorder);
  const Scratch target(fast_folder());
  std::mt19937_64 random(20240607);
  for (int i = 0; i < 60; ++i)
    check(recorder, recorded, random() % (recorder.events() + 1), random() % 8, target.path());
}

TEST_P(PowerCutTest, SlowEveryMoment) {
  options_at(scratch.path());
  io::PowerCutRecorder recorder(scratch.path());
  const Recorded recorded = record(recorder);
  const Scratch target(fast_folder());
  for (size_t cut = 0; cut <= recorder.events(); ++cut)
    for (uint64_t seed = 0; seed < (world() == 1 ? 12 : 4); ++seed) check(recorder, recorded, cut, seed, target.path());
}

class OneRankPowerCutTest : public StoreTest {};

// Killed between writing a record and its flush: the next process sees the record and goes on from it. What
// it was shown must then survive a power cut, although the slot of the record before is being overwritten.
TEST_F(OneRankPowerCutTest, AfterAKillBeforeTheFlushOfARecord) {
  io::PowerCutRecorder recorder(scratch.path());
  StoreOptions o = options();
  o.observer = &recorder;
  {
    StoreOptions stopped = o;
    int left = 2;
    stopped.failpoint = [&](std::string_view name) {
      if (name == "commit.record" && --left == 0) throw base::Error(base::ErrorKind::disk, "stop");
    };
    const auto store = create(stopped, layout);
    train_step(*store, layout, 1);
    EXPECT_THROW(train_step(*store, layout, 2), base::Error);
  }
  const auto store = Store::open(o, layout, nullptr);
  ASSERT_EQ(store->meta().step, 2u);
  const size_t opened = recorder.events();
  store->begin_writes();
  write_extents(*store, layout, 3);
  const Scratch target(fast_folder());
  for (size_t cut = opened; cut <= recorder.events(); ++cut)
    for (uint64_t seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE("cut " + recorder.describe(cut) + ", seed " + std::to_string(seed));
      recorder.materialise(cut, seed, target.path());
      o.run_dir = target.path() / "run";
      o.observer = nullptr;
      expect_step(*Store::open(o, layout, nullptr), 2);
    }
}

// The power goes again while the store recovers from the first cut.
TEST_P(PowerCutTest, AgainDuringRecovery) {
  options_at(scratch.path());
  io::PowerCutRecorder recorder(scratch.path());
  const Recorded recorded = record(recorder);
  std::mt19937_64 random(7);
  const size_t first_commit = recorded.reported[0];
  for (int i = 0; i < 12; ++i) {
    const Scratch first(fast_folder()), second(fast_folder());
    const size_t cut = first_commit + random() % (recorder.events() - first_commit + 1);
    recorder.materialise(cut, 2 + random() % 100, first.path());
    io::PowerCutRecorder again(first.path());
    const StoreOptions o = options_at(first.path(), &again);
    std::atomic<uint64_t> shown{0};
    on_all([&](Ranks& ranks) {
      const auto store = Store::open(o, cut_layout, nullptr, ranks);
      shown = store->meta().step;
      store->begin_writes();  // the state that was shown must stay, whatever is written from here on
      write_extents(*store, cut_layout, store->meta().step + 1, 1, ranks);
    });
    const uint64_t content = shown == kSkipped ? kSkipped - 1 : shown.load();
    // The recorder takes what is on disk as durable, so only cuts after the first write that follows the
    // recovery are tested.
    for (uint64_t seed = 0; seed < 4; ++seed) {
      again.materialise(again.events(), seed, second.path());
      const StoreOptions p = options_at(second.path());
      on_all([&](Ranks& ranks) {
        expect_state(*Store::open(p, cut_layout, nullptr, ranks), content, meta_of(shown), 0, ranks.rank());
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, PowerCutTest, ::testing::Values(Cut{1, 0}, Cut{2, 0}, Cut{2, 2}), [](const auto& test) {
  return std::to_string(test.param.world) + "ranks" + std::to_string(test.param.drives) + "drives";
});

}  // namespace
}  // namespace sluice::offload::test
