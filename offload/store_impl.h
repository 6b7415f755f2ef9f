// The one implementation of Store: an opened store of one rank on one drive.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "offload/store.h"
#include "offload/store_failpoint.h"
#include "offload/store_files.h"
#include "offload/store_slot_file.h"

namespace sluice::offload {

// What OPEN has locked, read and checked.
struct OpenedStore {
  StoreFiles files;
  Record record;  // the published one
  std::vector<uint64_t> table, base_table;
};

class FileStore final : public Store {
 public:
  struct Options {
    bool read_only = false;
    Durable durable = Durable::step;
    std::function<void(uint64_t, uint64_t)> progress;
  };
  FileStore(OpenedStore opened, const Layout& layout, Failpoints failpoints, Options options);

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

  bool one_slot() const { return slots_.size() == 1; }
  void write_generation(const StepMeta& meta);  // C2 into the target; sets next_
  void write_record(const Record& record, std::string_view written);

  const Layout layout_;
  const StoreGeometry geometry_;
  const Options options_;
  Failpoints failpoints_;
  const Uuid uuid_;
  const io::File super_, base_;
  const std::vector<io::File> slots_;

  Record record_;  // published
  Record next_;    // prepared
  std::atomic<int> published_;
  Phase phase_ = Phase::idle;
  bool broken_ = false;
  std::vector<uint64_t> table_, base_table_;  // of the published slot, of the base file
  std::vector<uint64_t> next_table_;          // of the target slot, as set
  std::vector<uint8_t> hash_set_;             // by entry of next_table_
};

}  // namespace sluice::offload
