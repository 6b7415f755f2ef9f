// Builds a store in a folder of its own, until it is published there: what CREATE and RESHARD have in common. Order of the flushes:
// docs/store_format.md, "Create".
#pragma once
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "offload/store.h"
#include "offload/store_failpoint.h"
#include "offload/store_lock.h"

namespace sluice::offload {

// Collective, all but take(). Every rank builds the files of its own shard; rank 0 also layout.json and SUPER. options, layout, ranks and
// failpoints outlive it.
class StoreBuilder {
 public:
  // folder: RUN/store.tmp or RUN/store.new. prefix: of the failpoints' names.
  StoreBuilder(const StoreOptions& options, const Layout& layout, Ranks& ranks, Failpoints& failpoints, std::filesystem::path folder,
               std::string prefix);

  const StoredLayout& stored() const { return stored_; }
  // Error(disk), before anything is written, when what all ranks need is not free.
  void check_space() const;
  // layout.json, durable; then the folders of the drives, and all files in full length.
  void make_files();

  // Called for every tile of this rank in order, with buffers for the weights extent and for the first fields of the state extent;
  // both are zero before.
  using Content = std::function<void(uint32_t tile, std::span<std::byte> weights, std::span<std::byte> state)>;
  // state_bytes: of one element, that content gives; the other fields are zero (and not written). Peak memory: one tile.
  void fill(uint64_t state_bytes, const Content& content);
  // Tables, headers, flushes, record 1. Nothing is flushed that holds the folder's name.
  void publish(const StepMeta& meta);

  void lock();                                     // the files, on the descriptions that take() gives
  OpenedStore take(const std::filesystem::path& store);  // the folder has this name now
  void renamed(const std::filesystem::path& store) { folder_ = store; }
  // Removes all that was made, as far as the other ranks still answer; the next create or open clears the rest. Never throws.
  void discard() noexcept;

 private:
  io::File create_file(const std::filesystem::path& path, uint64_t bytes) const {
    return io::File::create(path, bytes, {.observer = options_.observer});
  }
  bool separate_data() const { return !options_.paths.empty(); }
  std::filesystem::path data_folder(uint32_t drive) const { return separate_data() ? stored_.drives[drive] : folder_; }
  void write_layout();
  void make_data_files();
  uint64_t write_tile(uint32_t index, std::span<std::byte> weights, std::span<std::byte> state);
  void finish(DataFiles& files, uint32_t slot, const StepMeta& meta);
  DataFiles& own_files(uint32_t drive) { return data_[drive]; }

  const StoreOptions& options_;
  const Layout& layout_;
  Ranks& ranks_;
  Failpoints& failpoints_;
  std::filesystem::path folder_;
  const std::string prefix_;
  const uint32_t rank_;
  StoredLayout stored_;
  const StoreGeometry geometry_;
  std::string layout_text_;  // rank 0
  ZeroHashes zeros_;

  io::File super_;               // rank 0
  std::vector<DataFiles> data_;  // by drive
  Record record_;
  std::vector<uint64_t> table_hashes_;
};

}  // namespace sluice::offload
