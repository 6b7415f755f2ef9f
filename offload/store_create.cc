// CREATE: build under RUN/store.tmp, publish, rename. Order of the flushes: docs/store_format.md, "Create".
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "offload/store_builder.h"
#include "offload/store_open.h"

namespace sluice::offload {
namespace {

namespace fs = std::filesystem;
using base::ErrorKind;
using base::fail;

// Makes the missing folders of a path, durably; remembers them, to take back.
class NewFolders {
 public:
  explicit NewFolders(io::FileObserver* observer) : observer_(observer) {}
  void make(const fs::path& folder) {
    if (folder.empty() || fs::is_directory(folder)) return;
    make(folder.parent_path());
    made_.push_back(folder);
    io::make_directory(folder, observer_);
    io::sync_directory(folder.parent_path(), observer_);
  }
  void take_back() {  // those still empty
    std::error_code ignored;
    for (; !made_.empty(); made_.pop_back())
      if (fs::is_empty(made_.back(), ignored)) io::remove_tree(made_.back(), observer_);
  }

 private:
  io::FileObserver* observer_;
  std::vector<fs::path> made_;
};

// Rank 0's hold on the run's folder.
struct Claim {
  explicit Claim(io::FileObserver* observer) : folders(observer) {}
  NewFolders folders;
  std::optional<RunLock> lock;

  void take(const StoreOptions& options) {
    if (Store::exists(options.run_dir))
      fail(ErrorKind::config, "{} already holds a store. Continue it (--resume auto), or use another run.dir",
           options.run_dir.string());
    folders.make(options.run_dir);
    lock.emplace(options.run_dir, options.lock_seconds);
    if (Store::exists(options.run_dir))
      fail(ErrorKind::config, "{}: another process has just created a store here", options.run_dir.string());
  }
  void take_back() noexcept {
    try {
      lock.reset();
      folders.take_back();
    } catch (const std::exception&) {
    }
  }
};

void build(StoreBuilder& builder, const StoreOptions& options, const Layout& layout, const StepMeta& meta, const Store::Fill& fill,
           Ranks& ranks, Failpoints& failpoints) {
  builder.make_files();
  builder.fill(master_bytes(layout.schema()), [&](uint32_t tile, std::span<std::byte> weights, std::span<std::byte> master) {
    fill(layout.tiles()[tile], weights, master);
  });
  builder.publish(meta);
  ranks.on_first("naming the store", [&] {
    const fs::path store = store_folder(options.run_dir);
    io::rename_path(temporary_folder(options.run_dir), store, options.observer);
    builder.renamed(store);
    failpoints.pass("create.renamed");
    io::sync_directory(options.run_dir, options.observer);
    failpoints.pass("create.done");
  });
}

}  // namespace

std::unique_ptr<Store> Store::create(const StoreOptions& options, const Layout& layout, const StepMeta& meta,
                                     const Fill& fill, Ranks& ranks) {
  check_same_options(options, layout, ranks);
  Claim claim(options.observer);
  try {
    std::optional<Failpoints> failpoints;
    ranks.agree("checking storage.paths", [&] {
      failpoints.emplace(options.failpoint);
      check_paths(options.paths);
    });
    ranks.on_first("claiming run.dir", [&] { claim.take(options); });
    // May hold the space that this one needs.
    remove_store(temporary_folder(options.run_dir), {.paths = options.paths, .observer = options.observer}, ranks);
    {
      StoreBuilder builder(options, layout, ranks, *failpoints, temporary_folder(options.run_dir), "create");
      builder.check_space();
      try {
        build(builder, options, layout, meta, fill, ranks, *failpoints);
      } catch (...) {
        builder.discard();
        throw;
      }
    }
    return open(options, layout, nullptr, ranks);
  } catch (...) {
    claim.take_back();
    throw;
  }
}

}  // namespace sluice::offload
