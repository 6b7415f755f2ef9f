// The one implementation of Store: a rank's part of an opened store; read-only: all of it.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "offload/store.h"
#include "offload/store_failpoint.h"
#include "offload/store_lock.h"
#include "offload/store_slot_file.h"

namespace sluice::offload {

class FileStore final : public Store {
 public:
  struct Options {
    bool read_only = false;
    Durable durable = Durable::step;
    std::function<void(uint64_t, uint64_t)> progress;
  };
  // layout: the one it is written with. ranks outlives it.
  FileStore(OpenedStore opened, const Layout& layout, Ranks& ranks, Failpoints failpoints, Options options);

  const Layout& layout() const override { return layout_; }
  StepMeta meta() const override { return record_.meta; }
  uint64_t generation() const override { return record_.gen; }
  int published() const override { return published_.load(); }
  int target() const override;
  Extent extent(int slot, uint32_t tile, Part part) const override;
  uint64_t hash(int slot, uint32_t tile, Part part) const override;
  void set_hash(uint32_t tile, Part part, uint64_t hash) override;
  void begin_writes() override;
  void prepare(const StepMeta& meta) override;
  void publish() override;
  void skip(const StepMeta& meta) override;
  void commit_unchanged(const StepMeta& meta) override;
  void close(const StepMeta& meta) override;
  void verify() override;
  std::vector<const io::File*> files() const override;

 private:
  enum class Phase {
    idle,      // nothing written since the last publication
    writing,   // the target slot is garbage
    prepared,  // its generation is durable, not published
    closed,
  };
  class Change;  // one step of the protocol: an error inside it is final

  // The files of one rank on one drive, and the generation that is being written to them.
  struct Files : DataFiles {
    std::vector<uint64_t> next_table;  // of the target slot, as set
    std::vector<uint8_t> hash_set;     // by entry of next_table
  };

  bool one_slot() const { return slots_ == 1; }
  const Files& files_of(const StoreGeometry::Place& place) const;
  void mark_dirty();
  std::vector<uint64_t> write_generation(const StepMeta& meta, uint64_t gen);  // C2 into the target; returns the table hashes
  Record next_record(const StepMeta& meta, uint64_t seq) const;
  std::vector<uint64_t> agree_on(const char* what, const StepMeta& meta, const std::vector<uint64_t>& table_hashes);
  void write_record(const Record& record, std::string_view written);
  void close_one_slot(const StepMeta& meta);
  void publish_record(const Record& record, std::string_view written);
  void forget_hashes();

  const Layout layout_;
  const Options options_;
  Ranks& ranks_;
  Failpoints failpoints_;
  const Uuid uuid_;
  const StoreGeometry geometry_;
  const uint32_t slots_;
  const std::filesystem::path store_;
  const io::File super_;  // rank 0
  std::vector<Files> files_;

  Record record_;  // published
  std::vector<uint64_t> prepared_;  // table hashes of the generation that is durable in the target, by drive
  StepMeta prepared_meta_;
  std::atomic<int> published_;
  Phase phase_ = Phase::idle;
  bool broken_ = false;
};

}  // namespace sluice::offload
