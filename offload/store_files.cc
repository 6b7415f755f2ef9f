#include "offload/store_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "base/error.h"
#include "io/system_error.h"

namespace sluice::offload {
namespace {

namespace fs = std::filesystem;
using base::ErrorKind;
using base::fail;
using Clock = std::chrono::steady_clock;

constexpr auto kPollInterval = std::chrono::milliseconds(20);
constexpr const char* kHolderFile = "holder";

Clock::time_point deadline_after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Process ids that the kernel lists as holders of flocks on this file; empty where /proc/locks is not to be
// had.
std::string lock_pids(const io::File& file) {
  struct stat info {};
  if (fstat(file.fd(), &info) != 0) return "";
  const std::string wanted =
      fmt::format("{:02x}:{:02x}:{}", major(info.st_dev), minor(info.st_dev), info.st_ino);
  std::ifstream locks("/proc/locks");
  std::string pids;
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, access, pid, where;
    words >> number >> kind >> advisory >> access >> pid >> where;
    if (kind == "FLOCK" && where == wanted) pids += (pids.empty() ? "" : ", ") + pid;
  }
  return pids;
}

std::string holder_text(const fs::path& store, const io::File& file) {
  std::string written;
  std::ifstream in(store / kHolderFile);
  std::getline(in, written);
  const std::string pids = lock_pids(file);
  if (pids.empty()) return written.empty() ? "another process" : written;
  if (written.starts_with("pid " + pids + " ")) return written;
  return written.empty() ? "pid " + pids : fmt::format("pid {} (last run: {})", pids, written);
}

void lock_before(Clock::time_point deadline, const io::File& file, io::LockMode mode, const fs::path& store,
                 double seconds) {
  for (bool told = false; !file.try_lock(mode);) {
    if (Clock::now() >= deadline)
      fail(ErrorKind::disk,
           "the store {} is in use by {} (lock on {}, waited {:.3g} s). Stop that process, or use another "
           "run.dir",
           store.string(), holder_text(store, file), file.path().filename().string(), seconds);
    if (!std::exchange(told, true))
      spdlog::info("the store {} is in use by {}; waiting up to {:.3g} s for it", store.string(), holder_text(store, file), seconds);
    std::this_thread::sleep_for(kPollInterval);
  }
}

bool still_named(const io::File& file) {
  struct stat named {
  }, opened{};
  return stat(file.path().c_str(), &named) == 0 && fstat(file.fd(), &opened) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

fs::path find_data(const StoredLayout& stored, const fs::path& store, const LockOptions& options) {
  if (stored.drives.size() != 1)
    fail(ErrorKind::disk, "{}: slot files on {} drives; more than one is not built yet", store.string(),
         stored.drives.size());
  const fs::path& created = stored.drives[0];
  const bool inside = created == ".";
  const bool exclusive = options.mode == io::LockMode::exclusive;
  const fs::path moved =
      options.paths.empty() ? fs::path() : options.paths[0] / data_folder_name(stored.uuid);
  if (!inside && !moved.empty() && fs::is_directory(moved)) return moved;
  if (exclusive && inside != options.paths.empty())
    fail(ErrorKind::config,
         "the store keeps its slot files in {}, this config asks for {}. Moving an existing store is not "
         "built yet: "
         "set storage.paths back",
         inside ? store.string() : created.string(),
         options.paths.empty() ? store.string() : options.paths[0].string());
  const fs::path data = inside ? store : created;
  if (exclusive && !inside && fs::is_directory(data))
    fail(ErrorKind::config,
         "the store keeps its slot files in {}, this config asks for {}. Move the folder {} there, or set "
         "storage.paths back",
         created.string(), options.paths[0].string(), created.filename().string());
  if (!fs::is_directory(data))
    fail(ErrorKind::disk,
         "the slot files of {} are gone: no folder {}{}. Is the drive mounted? A moved folder is found under "
         "storage.paths",
         store.string(), data.string(), moved.empty() ? "" : " and no " + moved.string());
  return data;
}

// No value: the store was replaced while its locks were taken.
std::optional<StoreFiles> try_lock_store(const fs::path& store, const LockOptions& options,
                                         Clock::time_point deadline) {
  const bool exclusive = options.mode == io::LockMode::exclusive;
  const auto mode = exclusive ? io::OpenMode::read_write : io::OpenMode::read;
  const io::FileOptions file_options{.observer = options.observer};
  StoreFiles files;
  files.store = store;
  files.super = io::File::open(super_file(store), mode, file_options);
  lock_before(deadline, files.super, options.mode, store, options.seconds);
  if (!still_named(files.super)) return std::nullopt;
  files.stored = read_layout_file(layout_file(store));
  files.data = find_data(files.stored, store, options);
  if (files.stored.world != 1)
    fail(ErrorKind::config, "the store was written by {} ranks; more than one is not built yet",
         files.stored.world);
  for (uint32_t slot = 0; slot < files.stored.slots; ++slot) {
    const fs::path path = files.data / slot_file_name(0, 0, slot);
    if (!fs::exists(path))
      fail(ErrorKind::disk, "{} is missing; the store cannot be used without it. Restore the file from a copy, or start again in another "
           "run.dir", path.string());
    files.slots.push_back(io::File::open(path, mode, file_options));
    lock_before(deadline, files.slots.back(), options.mode, store, options.seconds);
    if (!still_named(files.slots.back())) return std::nullopt;
  }
  if (const fs::path base = files.data / slot_file_name(0, 0, kBaseSlot); fs::exists(base))
    files.base = io::File::open(base, io::OpenMode::read, file_options);
  return files;
}

}  // namespace

fs::path store_folder(const fs::path& run_dir) {
  return run_dir / "store";
}
fs::path temporary_folder(const fs::path& run_dir) {
  return run_dir / "store.tmp";
}
fs::path super_file(const fs::path& store) {
  return store / "SUPER";
}
fs::path layout_file(const fs::path& store) {
  return store / "layout.json";
}
std::string data_folder_name(const Uuid& uuid) {
  return "sluice-" + to_string(uuid);
}

std::string slot_file_name(uint32_t rank, uint32_t drive, uint32_t slot) {
  const std::string file = fmt::format("r{:03}.d{}", rank, drive);
  return slot == kBaseSlot ? file + ".base" : fmt::format("{}.s{}", file, slot);
}

RunLock::RunLock(const fs::path& run_dir, double seconds) {
  fd_ = ::open(run_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd_ < 0) fail(ErrorKind::disk, "cannot open {}: {}", run_dir.string(), io::errno_text(errno));
  const auto deadline = deadline_after(seconds);
  while (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if ((error == EWOULDBLOCK || error == EINTR) && Clock::now() < deadline) {
      std::this_thread::sleep_for(kPollInterval);
      continue;
    }
    ::close(fd_);
    if (error == EWOULDBLOCK)
      fail(ErrorKind::disk,
           "another process is creating a store in {} (waited {:.3g} s). Stop it, or use another run.dir",
           run_dir.string(), seconds);
    fail(ErrorKind::disk, "cannot lock {}: {}", run_dir.string(), io::errno_text(error));
  }
}
RunLock::~RunLock() {
  ::close(fd_);
}

StoreFiles lock_store(const fs::path& run_dir, const LockOptions& options) {
  const fs::path store = store_folder(run_dir);
  const auto deadline = deadline_after(options.seconds);
  for (;;) {
    if (!fs::exists(super_file(store))) fail(ErrorKind::disk, "{}: there is no SUPER, so no store. Restore it from a copy, or use another run.dir", store.string());
    if (auto files = try_lock_store(store, options, deadline)) return std::move(*files);
    if (Clock::now() >= deadline)
      fail(ErrorKind::disk, "the store {} was replaced again and again while it was opened", store.string());
  }
}

void report_page_cache(const io::File& slot, bool strict) {
  if (slot.direct()) return;
  const std::string text = fmt::format(
      "{}: no direct I/O (O_DIRECT) here, so slot files go through the page cache: slower, and in RAM that memory.host does not "
      "count. On tmpfs a restart loses the run. ext4 and XFS on a local drive have direct I/O",
      slot.path().parent_path().string());
  if (strict) fail(ErrorKind::disk, "{} (--strict: a fallback is an error)", text);
  spdlog::warn("{}", text);
}

void write_holder(const fs::path& store) {
  std::ofstream out(store / kHolderFile, std::ios::trunc);
  out << process_text() << ", boot " << boot_id() << "\n";
}

void remove_store(const fs::path& store, io::FileObserver* observer) {
  if (fs::exists(layout_file(store))) {
    StoredLayout stored;
    bool readable = true;
    try {
      stored = read_layout_file(layout_file(store));
    } catch (const base::Error&) {
      readable = false;  // torn: it was not durable yet, so the folders it would name were never made
    }
    for (const fs::path& drive : readable ? stored.drives : std::vector<fs::path>{}) {
      if (drive.filename() != data_folder_name(stored.uuid) || !fs::exists(drive)) continue;
      io::remove_tree(drive, observer);
      io::sync_directory(drive.parent_path(), observer);  // gone for good before the only file that names it
    }
  }
  io::remove_tree(store, observer);
  io::sync_directory(store.parent_path(), observer);
}

bool remove_leftovers(const fs::path& run_dir, io::FileObserver* observer) {
  const fs::path leftover = temporary_folder(run_dir);
  if (!fs::exists(leftover)) return false;
  remove_store(leftover, observer);
  return true;
}

}  // namespace sluice::offload
