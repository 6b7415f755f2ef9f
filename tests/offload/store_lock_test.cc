// Locks between processes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <functional>
#include <thread>

#include "store_fixture.h"

namespace sluice::offload::test {
namespace {

using base::ErrorKind;

// Runs `hold` in a child that then keeps what it has until release() or the end of the test.
class Child {
 public:
  explicit Child(const std::function<std::unique_ptr<Store>()>& hold) {
    int ready[2], release[2];
    if (pipe(ready) != 0 || pipe(release) != 0) throw std::runtime_error("pipe");
    pid_ = fork();
    if (pid_ == 0) {
      ::close(ready[0]);
      ::close(release[1]);
      try {
        auto store = hold();
        (void)!write(ready[1], "k", 1);
        char byte;
        (void)!read(release[0], &byte, 1);
        store.reset();
      } catch (...) {
        _exit(1);
      }
      _exit(0);
    }
    ::close(ready[1]);
    ::close(release[0]);
    release_ = release[1];
    char byte;
    ok_ = read(ready[0], &byte, 1) == 1;
    ::close(ready[0]);
  }
  ~Child() {
    if (pid_ > 0) wait_end();
  }
  bool ok() const { return ok_; }
  pid_t pid() const { return pid_; }
  void release() { (void)!write(release_, "r", 1); }
  void kill_now() { kill(pid_, SIGKILL); }
  void wait_end() {
    ::close(release_);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  int release_ = -1;
  bool ok_ = false;
};

TEST_F(StoreTest, ARunningStoreIsRefusedNamingItsHolder) {
  { create(); }
  Child child([&] { return open(); });
  ASSERT_TRUE(child.ok());
  const auto before = snapshot(scratch.path());
  const std::string pid = "pid " + std::to_string(child.pid()) + " on ";
  expect_error(ErrorKind::disk, {pid, "in use", store_dir().string()}, [&] { open(); });
  expect_error(ErrorKind::disk, {pid}, [&] { Store::open_read_only(options().run_dir, layout, nullptr); });
  EXPECT_TRUE(snapshot(scratch.path()) == before);
  child.kill_now();
  child.wait_end();
  expect_step(*open(), 0);
}

TEST_F(StoreTest, AnOpenerWaitsForTheLock) {
  { create(); }
  Child child([&] { return open(); });
  ASSERT_TRUE(child.ok());
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    child.release();
  });
  StoreOptions o = options();
  o.lock_seconds = 20;
  EXPECT_NO_THROW(Store::open(o, layout, nullptr));
  later.join();
}

TEST_F(StoreTest, ReadersShareAndKeepWritersOut) {
  { create(); }
  Child child([&] { return Store::open_read_only(options().run_dir, layout, nullptr); });
  ASSERT_TRUE(child.ok());
  const auto store = Store::open_read_only(options().run_dir, layout, nullptr);
  expect_step(*store, 0);
  expect_error(ErrorKind::disk, {"in use", std::to_string(child.pid())}, [&] { open(); });
  EXPECT_THROW(store->begin_writes(), base::Error);
}

// A lock on one slot file is enough: the process that holds it may still write.
TEST_F(StoreTest, EverySlotFileIsLocked) {
  { create(); }
  for (const int slot : {0, 1}) {
    const io::File file = io::File::open(slot_file(slot), io::OpenMode::read_write);
    ASSERT_TRUE(file.try_lock(io::LockMode::shared));
    expect_error(ErrorKind::disk, {"in use", slot_file(slot).filename().string()}, [&] { open(); });
  }
  EXPECT_NO_THROW(open());
}

// The store that was waited for is not the one that is there afterwards.
TEST_F(StoreTest, AStoreThatWasReplacedMeanwhileIsOpenedAnew) {
  { train_step(*create(), layout, 1); }
  StoreOptions o = options();
  o.run_dir = scratch.path() / "other";
  { train_step(*create(o, layout), layout, 2); }
  std::thread replace;
  Child child([&] { return open(); });
  ASSERT_TRUE(child.ok());
  replace = std::thread([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    fs::rename(store_dir(), scratch.path() / "old");
    fs::rename(o.run_dir / "store", store_dir());
    child.release();
  });
  StoreOptions wait = options();
  wait.lock_seconds = 20;
  expect_step(*Store::open(wait, layout, nullptr), 2);
  replace.join();
}

TEST_F(StoreTest, TwoCreationsDoNotMix) {
  fs::create_directories(options().run_dir);
  const RunLock lock(options().run_dir, 1);
  expect_error(ErrorKind::disk, {"another process is creating"}, [&] { create(); });
  EXPECT_TRUE(fs::is_empty(options().run_dir));
}

}  // namespace
}  // namespace sluice::offload::test
