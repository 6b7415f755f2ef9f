// The process ends at every point of the protocol, or an I/O operation fails: the next open finds one step,
// whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>

#include "offload/store_failpoint.h"
#include "store_faults.h"
#include "store_fixture.h"

namespace sluice::offload::test {
namespace {

using base::ErrorKind;

// Over one rank and over several. A failpoint belongs to one rank; the others go on until they need it.
class KillTest : public StoreTest, public ::testing::WithParamInterface<int> {
 protected:
  int world() const { return GetParam(); }
  const Layout cut = small_layout(Schema::bf16, {}, static_cast<uint32_t>(GetParam()));

  // create, step 1, step 2 (skipped), step 3, reopen, step 4. Errors by rank.
  std::vector<std::exception_ptr> work(const StoreOptions& o, const RankFailpoint& failpoint = nullptr) const {
    return on_ranks(world(), [&](Ranks& ranks) {
      const StoreOptions own = with_failpoint(o, failpoint, ranks);
      {
        const auto store = create(own, cut, ranks);
        train_step(*store, cut, 1, 0, ranks);
        store->skip(meta_of(2));
        train_step(*store, cut, 3, 0, ranks);
      }
      train_step(*Store::open(own, cut, nullptr, ranks), cut, 4, 0, ranks);
    });
  }
  // The points that each rank passes.
  std::vector<std::vector<std::string>> points(const StoreOptions& o) const {
    std::vector<std::vector<std::string>> passed(static_cast<size_t>(world()));
    expect_no_errors(work(o, [&](int rank, std::string_view name) { passed[static_cast<size_t>(rank)].emplace_back(name); }));
    return passed;
  }
  // Opens on all ranks: whole, at a step in [first, last]; then one step more.
  void expect_goes_on(const StoreOptions& o, uint64_t first, uint64_t last) const {
    uint64_t step = 0;
    expect_no_errors(on_ranks(world(), [&](Ranks& ranks) {
      const auto store = Store::open(o, cut, nullptr, ranks);
      const uint64_t found = store->meta().step;
      expect_state(*store, found == 2 ? 1 : found, meta_of(found), 0, ranks.rank());
      train_step(*store, cut, found + 1, 9, ranks);
      if (ranks.rank() == 0) step = found;
    }));
    EXPECT_GE(step, first);
    EXPECT_LE(step, last);
    expect_state(*read(o), step + 1, meta_of(step + 1), 9);
  }
  StoreOptions with_path() const {
    StoreOptions o = options();
    o.paths = {scratch.path() / "nvme"};
    fs::create_directories(o.paths[0]);
    return o;
  }
  size_t data_folders() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(scratch.path() / "nvme"), {}));
  }
};

TEST_P(KillTest, AtEveryPointOfTheProtocol) {
  const auto passed = points(with_path());
  fs::remove_all(scratch.path() / "nvme");
  fs::remove_all(options().run_dir);
  ASSERT_GT(passed[0].size(), 30u);
  for (const std::string_view name : failpoint_names()) {
    if (name == "dirty.marked") continue;        // durable none
    if (name.starts_with("reshard.")) continue;  // store_reshard_test.cc
    EXPECT_NE(std::find(passed[0].begin(), passed[0].end(), name), passed[0].end()) << name;
  }

  for (int rank = 0; rank < world(); ++rank) {
    uint64_t committed = 0;
    for (size_t stop = 0; stop < passed[static_cast<size_t>(rank)].size(); ++stop) {
      const std::string& name = passed[static_cast<size_t>(rank)][stop];
      const StoreOptions o = with_path();
      ASSERT_EQ(run_child([&] {
        size_t seen = 0;
        work(o, [&](int r, std::string_view) {
          if (r == rank && seen++ == stop) _exit(kKilled);
        });
      }), kKilled);
      const bool commits = name.starts_with("commit") || name.starts_with("skip");
      committed += name.ends_with(".done") && commits;
      SCOPED_TRACE(name + " (" + std::to_string(stop) + ") of rank " + std::to_string(rank));
      if (!Store::exists(o.run_dir)) {
        EXPECT_TRUE(name.starts_with("create.") && name != "create.renamed");
        expect_no_errors(on_ranks(world(), [&](Ranks& ranks) { create(o, cut, ranks); }));
      }
      // A record that was written counts even before its flush: the kernel has it. Another rank than the first does not know how far
      // the first has come, but none publishes before all have prepared.
      const bool written = name.ends_with(".record"), agreed = rank == 0 || (commits && name.find(".done") == std::string::npos);
      expect_goes_on(o, committed + written, committed + (written || !agreed));
      EXPECT_EQ(data_folders(), 1u);  // nothing of an interrupted creation is left
      EXPECT_FALSE(fs::exists(o.run_dir / "store.tmp"));
      fs::remove_all(scratch.path() / "nvme");
      fs::remove_all(o.run_dir);
    }
    EXPECT_EQ(committed, 4u);
  }
}

TEST_P(KillTest, ThrownAtEveryPoint) {
  const StoreOptions o = options();
  const auto passed = points(o);
  fs::remove_all(o.run_dir);
  for (int rank = 0; rank < world(); ++rank)
    for (size_t stop = 0; stop < passed[static_cast<size_t>(rank)].size(); ++stop) {
      SCOPED_TRACE("rank " + std::to_string(rank) + " at " + passed[static_cast<size_t>(rank)][stop]);
      size_t seen = 0;
      const auto errors = work(o, [&](int r, std::string_view) {
        if (r == rank && seen++ == stop) base::fail(ErrorKind::disk, "injected");
      });
      for (int r = 0; r < world(); ++r) {
        const std::string text = error_text(errors[static_cast<size_t>(r)]);
        if (r == rank) {
          EXPECT_EQ(text, "7: injected");
        }
        // The others get it as their own error, unless they had nothing left to do with that rank.
        if (r != rank && stop + 1 < passed[static_cast<size_t>(rank)].size()) {
          EXPECT_TRUE(text.starts_with("9: ")) << text;
          EXPECT_NE(text.find("injected"), std::string::npos) << text;
        }
      }
      if (Store::exists(o.run_dir))
        expect_goes_on(o, 0, 4);
      else
        EXPECT_FALSE(fs::exists(o.run_dir));  // what was made is taken back
      fs::remove_all(o.run_dir);
    }
}

class OneRankKillTest : public StoreTest {};

TEST_F(OneRankKillTest, TheEnvironmentNamesAPointForWholePrograms) {
  const auto work = [&](const StoreOptions& o) {
    {
      const auto store = create(o, layout);
      train_step(*store, layout, 1);
      store->skip(meta_of(2));
      train_step(*store, layout, 3);
    }
    train_step(*Store::open(o, layout, nullptr), layout, 4);
  };
  const auto child = [&](const char* setting) {
    fs::remove_all(options().run_dir);
    return run_child([&] {
      setenv("SLUICE_FAILPOINT", setting, 1);
      work(options());
    });
  };
  EXPECT_EQ(child("commit.record:2"), kKilled);
  expect_state(*open(), 3, meta_of(3));  // written, and only a power cut could lose it
  EXPECT_EQ(child("commit.prepared:2"), kKilled);
  expect_state(*open(), 1, meta_of(2));
  EXPECT_EQ(child("skip.record"), kKilled);
  expect_state(*open(), 1, meta_of(2));
  EXPECT_EQ(child("commit.record:50"), 0);
  setenv("SLUICE_FAILPOINT", "commit.recrod:1", 1);
  expect_error(ErrorKind::config, {"commit.recrod", "commit.record"}, [&] { open(); });
  setenv("SLUICE_FAILPOINT", "commit.record:x", 1);
  expect_error(ErrorKind::config, {"commit.record:x"}, [&] { open(); });
  unsetenv("SLUICE_FAILPOINT");
}

TEST_F(OneRankKillTest, DurableNoneIsRefusedOnceMarkedAndFineBefore) {
  StoreOptions o = options();
  o.durable = Durable::none;
  const auto run = [&] {
    const auto store = create(o, layout);
    store->begin_writes();
    write_extents(*store, layout, 1);
    store->close(meta_of(1));
  };
  for (const std::string stop :
       {"open.done", "dirty.marked", "commit.table", "commit.prepared", "commit.record", "commit.done"}) {
    o.failpoint = [&](std::string_view name) {
      if (name == stop) _exit(kKilled);
    };
    ASSERT_EQ(run_child(run), kKilled);
    o.failpoint = nullptr;
    if (stop == "open.done")
      expect_step(*Store::open(o, layout, nullptr), 0);
    else if (stop == "commit.record" || stop == "commit.done")
      expect_step(*Store::open(o, layout, nullptr), 1);
    else
      expect_error(ErrorKind::disk, {"durable: none"}, [&] { Store::open(o, layout, nullptr); });
    fs::remove_all(o.run_dir);
  }
}

TEST_P(KillTest, EveryNthOperationFails) {
  for (int rank = 0; rank < world(); ++rank)
    for (size_t n = 1;; ++n) {
      SCOPED_TRACE("operation " + std::to_string(n) + " of rank " + std::to_string(rank));
      FailNth faults(n);
      const StoreOptions o = options();
      std::atomic<uint64_t> before{0};
      const auto errors = on_ranks(world(), [&](Ranks& ranks) {
        StoreOptions own = o;
        if (ranks.rank() == rank) own.observer = &faults;
        const auto store = create(own, cut, ranks);
        for (uint64_t step = 1; step <= 2; ++step) {
          train_step(*store, cut, step, 0, ranks);
          if (ranks.rank() == 0) before = step;
        }
        store->skip(meta_of(3));
        if (ranks.rank() == 0) before = 3;
      });
      const bool threw = errors[static_cast<size_t>(rank)] != nullptr;
      EXPECT_EQ(threw, faults.fired());
      for (size_t r = 0; threw && r < errors.size(); ++r) {
        const std::string text = error_text(errors[r]);
        EXPECT_TRUE(text.starts_with(static_cast<int>(r) == rank ? "7: " : "9: ")) << text;
        EXPECT_NE(text.find("injected"), std::string::npos) << text;
      }
      if (Store::exists(o.run_dir)) {
        const auto store = read(o);
        const uint64_t step = store->meta().step;
        EXPECT_TRUE(step == before || step == before + 1) << step;
        expect_state(*store, std::min<uint64_t>(step, 2), meta_of(step));
      } else {
        EXPECT_EQ(before, 0u);
        EXPECT_FALSE(fs::exists(o.run_dir));
      }
      fs::remove_all(o.run_dir);
      if (!threw) {
        EXPECT_GT(n, rank == 0 ? 40u : 25u);
        break;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, KillTest, ::testing::Values(1, 2), ::testing::PrintToStringParamName());

}  // namespace
}  // namespace sluice::offload::test
