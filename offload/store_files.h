// Names, folders and locks of a store. Used by create and open only.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/file.h"
#include "offload/store_layout_file.h"
#include "offload/store_slot_file.h"

namespace sluice::offload {

std::filesystem::path store_folder(const std::filesystem::path& run_dir);  // RUN/store
std::filesystem::path temporary_folder(
    const std::filesystem::path& run_dir);  // RUN/store.tmp: a store that is being created
std::filesystem::path super_file(const std::filesystem::path& store);
std::filesystem::path layout_file(const std::filesystem::path& store);
std::string data_folder_name(const Uuid& uuid);  // "sluice-<uuid>", under a storage path
std::string slot_file_name(uint32_t rank, uint32_t drive, uint32_t slot);  // kBaseSlot: the base file

// Exclusive lock on the run's folder while a store is created. Error(disk) when another process keeps it.
class RunLock {
 public:
  RunLock(const std::filesystem::path& run_dir, double seconds);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int fd_ = -1;
};

// The files of a store, locked on the descriptions used for I/O.
struct StoreFiles {
  StoredLayout stored;
  std::filesystem::path store, data;  // folders
  io::File super, base;               // base: invalid when nothing is frozen
  std::vector<io::File> slots;
};

struct LockOptions {
  io::LockMode mode = io::LockMode::exclusive;
  double seconds = 30;
  std::vector<std::filesystem::path> paths;  // the config's; shared: only where to look
  io::FileObserver* observer = nullptr;
};

// OPEN 1: SUPER, then every slot file; then RUN/store must still name what was locked, else it starts again.
// Error(disk) naming the holder when a lock is not to be had in time; Error(config) when the slot files are
// elsewhere than the config says.
StoreFiles lock_store(const std::filesystem::path& run_dir, const LockOptions& options);

// O_DIRECT is refused for this slot file: one log line, with strict an Error(disk).
void report_page_cache(const io::File& slot, bool strict);

// Text for the process that finds the store locked; the lock alone decides. Never fails.
void write_holder(const std::filesystem::path& store);

// Removes RUN/store.tmp and the data folder that its layout.json names. True: there was one.
bool remove_leftovers(const std::filesystem::path& run_dir, io::FileObserver* observer);
// The same for a store folder that is given up while it is created.
void remove_store(const std::filesystem::path& store, io::FileObserver* observer);

}  // namespace sluice::offload
