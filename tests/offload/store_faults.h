// Ways for a store's process, or one operation of it, to fail.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/file.h"
#include "io/file_observer.h"

namespace sluice::offload::test {

inline constexpr int kKilled = 137;

// Exit status of a process that does `work`: 0, 1 when it threw.
inline int run_child(const std::function<void()>& work) {
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

// Fails the n-th write, sync, or change of names.
class FailNth final : public io::FileObserver {
 public:
  explicit FailNth(size_t n) : left_(n) {}
  void created(const io::File&, uint64_t) override { count(); }
  uint64_t write_begins(const io::File&, uint64_t, std::span<const std::byte>) override { return count(); }
  void write_ended(uint64_t) override {}
  uint64_t sync_begins(const io::File&) override { return count(); }
  void sync_ended(uint64_t) override {}
  void directory_made(const std::filesystem::path&) override { count(); }
  void directory_synced(const std::filesystem::path&) override { count(); }
  void renamed(const std::filesystem::path&, const std::filesystem::path&) override { count(); }
  void exchanged(const std::filesystem::path&, const std::filesystem::path&) override { count(); }
  void linked(const std::filesystem::path&, const std::filesystem::path&) override { count(); }
  void removed(const std::filesystem::path&) override {}
  bool fired() const { return left_ == 0; }

 private:
  uint64_t count() {
    if (left_ != 0 && --left_ == 0) base::fail(base::ErrorKind::disk, "injected failure");
    return 0;
  }
  std::atomic<size_t> left_;
};

// What is done to files, in order, by file name.
class ChangeLog final : public io::FileObserver {
 public:
  void created(const io::File&, uint64_t) override {}
  uint64_t write_begins(const io::File& file, uint64_t, std::span<const std::byte>) override { return add("write " + name(file)); }
  void write_ended(uint64_t) override {}
  uint64_t sync_begins(const io::File& file) override { return add("sync " + name(file)); }
  void sync_ended(uint64_t) override {}
  void directory_made(const std::filesystem::path&) override {}
  void directory_synced(const std::filesystem::path& path) override { add("sync folder " + path.filename().string()); }
  void renamed(const std::filesystem::path&, const std::filesystem::path&) override {}
  void exchanged(const std::filesystem::path&, const std::filesystem::path&) override {}
  void linked(const std::filesystem::path&, const std::filesystem::path&) override {}
  void removed(const std::filesystem::path&) override {}

  std::vector<std::string> lines;

 private:
  static std::string name(const io::File& file) { return file.path().filename(); }
  uint64_t add(const std::string& line) { return lines.push_back(line), 0; }
};

}  // namespace sluice::offload::test
