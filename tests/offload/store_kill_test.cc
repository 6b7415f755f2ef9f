// The process ends at every point of the protocol, or an I/O operation fails: the next open finds one step,
// whole.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <functional>

#include "io/file_observer.h"
#include "offload/store_failpoint.h"
#include "store_fixture.h"

namespace sluice::offload::test {
namespace {

using base::ErrorKind;

constexpr int kKilled = 137;

int run_child(const std::function<void()>& work) {
  const pid_t pid = fork();
  if (pid == 0) {
    try {
      work();
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class KillTest : public StoreTest {
 protected:
  // create, step 1, step 2 (skipped), step 3, reopen, step 4
  void work(const StoreOptions& o) const {
    {
      const auto store = create(o, layout);
      train_step(*store, layout, 1);
      store->skip(meta_of(2));
      train_step(*store, layout, 3);
    }
    train_step(*Store::open(o, layout, nullptr), layout, 4);
  }
  // What the bytes and the meta must be, given the step that was found.
  void expect_whole(Store& store) const {
    const uint64_t step = store.meta().step;
    ASSERT_LE(step, 4u);
    expect_state(store, step == 2 ? 1 : step, meta_of(step));
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

TEST_F(KillTest, AtEveryPointOfTheProtocol) {
  StoreOptions o = with_path();
  std::vector<std::string> passed;
  o.failpoint = [&](std::string_view name) { passed.emplace_back(name); };
  work(o);
  fs::remove_all(scratch.path() / "nvme");
  fs::remove_all(o.run_dir);
  ASSERT_GT(passed.size(), 30u);
  for (const std::string_view name : failpoint_names()) {
    if (name == "dirty.marked") continue;           // durable none
    if (name.starts_with("reshard.")) continue;     // store_reshard_test.cc
    EXPECT_NE(std::find(passed.begin(), passed.end(), name), passed.end()) << name;
  }

  uint64_t committed = 0;
  for (size_t stop = 0; stop < passed.size(); ++stop) {
    o = with_path();
    size_t seen = 0;
    o.failpoint = [&](std::string_view) {
      if (seen++ == stop) _exit(kKilled);
    };
    ASSERT_EQ(run_child([&] { work(o); }), kKilled);
    committed += passed[stop].ends_with(".done") &&
                 (passed[stop].starts_with("commit") || passed[stop].starts_with("skip"));
    SCOPED_TRACE(passed[stop] + " (" + std::to_string(stop) + ")");
    o.failpoint = nullptr;
    if (!Store::exists(o.run_dir)) {
      EXPECT_TRUE(passed[stop].starts_with("create.") && passed[stop] != "create.renamed");
      expect_step(*create(o, layout), 0);
    }
    const auto store = Store::open(o, layout, nullptr);
    expect_whole(*store);
    // A record that was written counts even before its flush: the kernel has it.
    EXPECT_EQ(store->meta().step, committed + passed[stop].ends_with(".record"));
    EXPECT_EQ(data_folders(), 1u);  // nothing of an interrupted creation is left
    EXPECT_FALSE(fs::exists(o.run_dir / "store.tmp"));
    train_step(*store, layout, store->meta().step + 1, 9);  // and it goes on
    fs::remove_all(scratch.path() / "nvme");
    fs::remove_all(o.run_dir);
  }
  EXPECT_EQ(committed, 4u);
}

TEST_F(KillTest, ThrownAtEveryPoint) {
  StoreOptions o = options();
  size_t points = 0;
  o.failpoint = [&](std::string_view) { ++points; };
  work(o);
  fs::remove_all(o.run_dir);
  for (size_t stop = 0; stop < points; ++stop) {
    SCOPED_TRACE(stop);
    size_t seen = 0;
    o.failpoint = [&](std::string_view) {
      if (seen++ == stop) base::fail(ErrorKind::disk, "injected");
    };
    expect_error(ErrorKind::disk, {"injected"}, [&] { work(o); });
    if (Store::exists(o.run_dir)) {
      const auto store = open();
      expect_whole(*store);
    } else {
      EXPECT_FALSE(fs::exists(o.run_dir));  // what was made is taken back
    }
    fs::remove_all(o.run_dir);
  }
}

TEST_F(KillTest, TheEnvironmentNamesAPointForWholePrograms) {
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

TEST_F(KillTest, DurableNoneIsRefusedOnceMarkedAndFineBefore) {
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

// Fails the n-th write, sync, or change of names.
class FailNth final : public io::FileObserver {
 public:
  explicit FailNth(size_t n) : left_(n) {}
  void created(const io::File&, uint64_t) override { count(); }
  uint64_t write_begins(const io::File&, uint64_t, std::span<const std::byte>) override { return count(); }
  void write_ended(uint64_t) override {}
  uint64_t sync_begins(const io::File&) override { return count(); }
  void sync_ended(uint64_t) override {}
  void directory_made(const fs::path&) override { count(); }
  void directory_synced(const fs::path&) override { count(); }
  void renamed(const fs::path&, const fs::path&) override { count(); }
  void exchanged(const fs::path&, const fs::path&) override { count(); }
  void linked(const fs::path&, const fs::path&) override { count(); }
  void removed(const fs::path&) override {}
  bool fired() const { return left_ == 0; }

 private:
  uint64_t count() {
    if (left_ != 0 && --left_ == 0) base::fail(ErrorKind::disk, "injected failure");
    return 0;
  }
  size_t left_;
};

TEST_F(KillTest, EveryNthOperationFails) {
  for (size_t n = 1;; ++n) {
    SCOPED_TRACE(n);
    FailNth faults(n);
    StoreOptions o = options();
    o.observer = &faults;
    bool threw = false;
    uint64_t before = 0;
    try {
      std::unique_ptr<Store> store = create(o, layout);
      for (uint64_t step = 1; step <= 2; ++step) {
        train_step(*store, layout, step);
        before = step;
      }
      store->skip(meta_of(3));
      before = 3;
    } catch (const base::Error& error) {
      threw = true;
      EXPECT_EQ(error.kind(), ErrorKind::disk) << error.what();
      EXPECT_NE(std::string(error.what()).find("injected"), std::string::npos) << error.what();
    }
    EXPECT_EQ(threw, faults.fired());
    if (Store::exists(o.run_dir)) {
      const auto store = open();
      const uint64_t step = store->meta().step;
      EXPECT_TRUE(step == before || step == before + 1) << step;
      expect_state(*store, std::min<uint64_t>(step, 2), meta_of(step));
    } else {
      EXPECT_EQ(before, 0u);
      EXPECT_FALSE(fs::exists(o.run_dir));
    }
    fs::remove_all(o.run_dir);
    if (!threw) {
      EXPECT_GT(n, 40u);
      break;
    }
  }
}

}  // namespace
}  // namespace sluice::offload::test
