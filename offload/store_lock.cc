#include "offload/store_lock.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <set>
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
  std::ifstream in(holder_file(store));
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

// The folder that holds the slot files of drive `d`, as seen from here: under a path of the config (a moved folder is found by its
// uuid), or where it was created.
fs::path find_folder(const StoredLayout& stored, uint32_t d, uint32_t rank, const std::vector<fs::path>& paths, const fs::path& store) {
  if (stored.drives[d] == ".") return store;
  std::vector<fs::path> places;
  for (const fs::path& path : paths) places.push_back(fs::absolute(path).lexically_normal() / data_folder_name(stored.uuid));
  places.push_back(stored.drives[d]);
  const std::string file = slot_file_name(rank, d, 0);
  for (const fs::path& place : places)
    if (fs::exists(place / file)) return place;
  for (const fs::path& place : places)
    if (place == stored.drives[d] && fs::is_directory(place)) return place;  // whose file is missing: said when it is opened
  std::string also;
  for (const fs::path& place : places)
    if (place != stored.drives[d]) also += " and no " + place.string();
  fail(ErrorKind::disk,
       "the slot files of {} are gone: no folder {} with {}{}. Is the drive mounted? A moved folder is found under "
       "storage.paths",
       store.string(), stored.drives[d].string(), file, also);
}

bool is_in_place(const StoreFiles& files, const std::vector<fs::path>& paths) {
  if (files.stored.drives.front() == ".") return paths.empty();
  std::set<fs::path> wanted, found;
  for (const fs::path& path : paths) wanted.insert(fs::weakly_canonical(path));
  for (const fs::path& folder : files.folders) found.insert(fs::weakly_canonical(folder).parent_path());
  return wanted == found && paths.size() == files.folders.size();
}

// Of the ranks that wrote the store, those whose files this one locks. No file may stay without: their process may still write.
std::vector<uint32_t> ranks_to_lock(uint32_t stored_world, bool all, const Ranks& ranks) {
  std::vector<uint32_t> mine;
  for (uint32_t r = 0; r < stored_world; ++r)
    if (all || r % static_cast<uint32_t>(ranks.world()) == static_cast<uint32_t>(ranks.rank())) mine.push_back(r);
  return mine;
}

// One attempt to lock the store. False: it was replaced meanwhile.
class Attempt {
 public:
  Attempt(const fs::path& store, const LockOptions& options, Clock::time_point deadline)
      : options_(options),
        deadline_(deadline),
        mode_(options.mode == io::LockMode::exclusive ? io::OpenMode::read_write : io::OpenMode::read) {
    files.store = store;
  }

  bool lock_super() {
    files.super = io::File::open(super_file(files.store), mode_, {.observer = options_.observer});
    return lock(files.super);
  }

  bool lock_data(const Ranks& ranks) {
    if (ranks.rank() != 0 && !fs::exists(layout_file(files.store)))
      fail(ErrorKind::disk,
           "{} is not there, but rank 0 has opened it: run.dir must be on a file system that all ranks share",
           layout_file(files.store).string());
    const std::vector<uint32_t> mine = ranks_to_lock(files.stored.world, options_.all_ranks, ranks);
    for (uint32_t d = 0; d < files.stored.drives.size(); ++d)
      files.folders.push_back(find_folder(files.stored, d, mine.empty() ? 0 : mine.front(), options_.paths, files.store));
    files.in_place = is_in_place(files, options_.paths);
    for (const uint32_t rank : mine)
      for (uint32_t d = 0; d < files.folders.size(); ++d)
        if (!lock_drive(rank, d)) return false;
    return true;
  }

  StoreFiles files;

 private:
  bool lock(const io::File& file) const {
    lock_before(deadline_, file, options_.mode, files.store, options_.seconds);
    return still_named(file);
  }

  bool lock_drive(uint32_t rank, uint32_t drive) {
    DataFiles& data = files.data.emplace_back();
    data.rank = rank;
    data.drive = drive;
    for (uint32_t slot = 0; slot < files.stored.slots; ++slot) {
      const fs::path path = files.folders[drive] / slot_file_name(rank, drive, slot);
      if (!fs::exists(path))
        fail(ErrorKind::disk,
             "{} is missing; the store cannot be used without it. Restore the file from a copy, or start again in another "
             "run.dir",
             path.string());
      data.slots.push_back(io::File::open(path, mode_, {.observer = options_.observer}));
      if (!lock(data.slots.back())) return false;
    }
    if (const fs::path base = files.folders[drive] / slot_file_name(rank, drive, kBaseSlot); fs::exists(base))
      data.base = io::File::open(base, io::OpenMode::read, {.observer = options_.observer});
    return true;
  }

  const LockOptions& options_;
  const Clock::time_point deadline_;
  const io::OpenMode mode_;
};

}  // namespace

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

StoreFiles lock_store(const fs::path& run_dir, const LockOptions& options, Ranks& ranks) {
  const fs::path store = store_folder(run_dir);
  const auto deadline = deadline_after(options.seconds);
  for (bool again = false;; again = true) {
    Attempt attempt(store, options, deadline);
    const Bytes text = ranks.from_first("locking the store", [&] {
      if (!fs::exists(super_file(store)))
        fail(ErrorKind::disk, "{}: there is no SUPER, so no store. Restore it from a copy, or use another run.dir", store.string());
      if (again && Clock::now() >= deadline)
        fail(ErrorKind::disk, "the store {} was replaced again and again while it was opened", store.string());
      if (!attempt.lock_super()) return Bytes();
      attempt.files.stored = read_layout_file(layout_file(store));
      return bytes_of(layout_message(attempt.files.stored));
    });
    if (text.empty()) continue;
    const std::vector<Bytes> locked = ranks.exchange("locking slot files", [&] {
      attempt.files.stored = parse_layout_message(text_of(text));
      return Bytes(attempt.lock_data(ranks) ? 1 : 0);
    });
    const auto replaced = [](const Bytes& b) { return b.empty(); };
    if (std::none_of(locked.begin(), locked.end(), replaced)) return std::move(attempt.files);
  }
}

}  // namespace sluice::offload
