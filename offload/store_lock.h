// Finds and locks the files of a store: OPEN 1.
#pragma once
#include <filesystem>
#include <vector>

#include "offload/store_files.h"

namespace sluice::offload {

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

// The files of one rank on one drive, locked on the descriptions used for I/O, and their tables.
struct DataFiles {
  uint32_t rank = 0, drive = 0;
  std::vector<io::File> slots;
  io::File base;                            // invalid when nothing is frozen here; not locked: it is never written again
  std::vector<uint64_t> table, base_table;  // of the published slot and of the base file
};

struct StoreFiles {
  StoredLayout stored;
  std::filesystem::path store;
  std::vector<std::filesystem::path> folders;  // by drive: where this rank sees the slot files
  bool in_place = true;                        // those are where the config wants them
  io::File super;                              // rank 0
  std::vector<DataFiles> data;                 // by (rank, drive): what this process has locked
};

// What OPEN has locked, read and checked.
struct OpenedStore {
  StoreFiles files;
  Record record;  // the published one
  std::vector<uint64_t> table_hashes;  // of all files of the published slot, by (rank, drive): the root is over them
};

struct LockOptions {
  io::LockMode mode = io::LockMode::exclusive;
  double seconds = 30;
  std::vector<std::filesystem::path> paths;  // the config's; shared: only where to look
  bool all_ranks = false;                    // this process takes the files of all ranks that wrote the store
  io::FileObserver* observer = nullptr;
};

// Rank 0 locks SUPER, then each rank its slot files (of a store of another world, each some); then the names must still lead to what
// was locked, else all start again. Collective: no rank returns before all hold their locks. Error(disk) naming the holder when a lock
// is not to be had in time, or the file that is missing.
StoreFiles lock_store(const std::filesystem::path& run_dir, const LockOptions& options, Ranks& ranks);

}  // namespace sluice::offload
