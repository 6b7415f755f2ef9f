// The durable home of weights and optimizer state: slots of preallocated files, checksum tables, an atomic
// commit. Bytes and state machine: docs/store_format.md.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/disk_queue.h"
#include "io/file.h"
#include "offload/layout.h"
#include "offload/ranks.h"
#include "offload/store_extent.h"
#include "offload/store_record.h"

namespace sluice::offload {

enum class Durable : uint8_t { step, checkpoint, none };

struct StoreOptions {
  std::filesystem::path run_dir;             // holds store/SUPER and store/layout.json; all ranks see it
  std::vector<std::filesystem::path> paths;  // existing folders, one a drive, for slot files; empty:
                                             // run_dir/store. May be local to a node
  // By path, in any unit: the data is dealt in proportion, and a store that was dealt otherwise is rewritten. Empty: as measured when the
  // store is made, and as it is afterwards.
  std::vector<double> drive_rates;
  // Called on rank 0 when a store is made on several paths whose rates are not given: theirs. None, or nothing to call: each gets as much.
  std::function<std::vector<double>(const std::vector<std::filesystem::path>& paths)> measure_drives;
  Durable durable = Durable::step;
  std::string model_digest;     // hex; of the source model. Another model: Error(disk)
  double lock_seconds = 30;     // how long to wait for a lock that another process holds
  bool verify_on_open = false;  // always verify the whole published slot
  bool strict = false;          // slot files without O_DIRECT are Error(disk) instead of a log line
  // Bytes done and in all, while creating or verifying; caller's thread.
  std::function<void(uint64_t done, uint64_t total)> progress;

  // Tests. Called with the name of each point of the protocol that is passed (store_failpoint.h); may throw
  // or end the process.
  std::function<void(std::string_view name)> failpoint;
  io::FileObserver* observer = nullptr;  // told of every change made to files; must outlive the store
};

struct Extent {
  const io::File* file = nullptr;
  uint64_t offset = 0;
  uint64_t bytes = 0;  // padded, multiple of 4 KiB
  uint32_t drive = 0;  // index into storage.paths
};

// What OPEN found, for one line to the user each.
struct OpenReport {
  StepMeta meta;
  std::vector<std::string> notes;  // damaged other record, verified slot, rewritten store, cleared leftovers, ...; on rank 0
};

// A rank's part of the store: the extents of its own shard (Tile::shard). Rank 0 alone holds the record. Collective, on all ranks in the
// same order: create, open, publish, skip, close. A failure of one rank there is one of all: its own error on that rank, Error(peer) with
// its reason on the others; nobody publishes.
//
// Not thread-safe except extent(), published(), target() and set_hash() (different tiles). Errors: Error(disk), with what, where, and
// what to do. After an error in begin_writes, prepare, publish, skip or close the store refuses every further change: end the process
// and open again, which finds out what became durable.
class Store {
 public:
  static bool exists(const std::filesystem::path& run_dir);

  // CREATE. `fill` is called for every tile of this rank in order, with host buffers of the extent sizes to fill with the
  // initial weights extent and the master's part of the state (lo or p, see master_bytes; zero-filled before the call; m and v
  // stay unwritten = zero); frozen tiles: weights only, into the base file. Peak memory: one tile. On any error nothing
  // is left behind but what existed before. An existing store is Error(config); too little space Error(disk)
  // before anything is written.
  using Fill = std::function<void(const Tile& tile, std::span<std::byte> weights, std::span<std::byte> master)>;
  static std::unique_ptr<Store> create(const StoreOptions& options, const Layout& layout,
                                       const StepMeta& meta, const Fill& fill, Ranks& ranks = single_rank());

  // OPEN, exclusive. Leaves the store untouched when it refuses. Another model, a held lock, damage:
  // Error(disk). Another schema or trainable set: Error(config) naming the stored value. A store of another
  // world, tile, paths, drive rates or number of slots is rewritten (RESHARD): it needs that much free space again, and
  // every rank must see the files of all ranks that wrote it. report may be null. layout.world() is
  // ranks.world(); ranks outlives the store.
  static std::unique_ptr<Store> open(const StoreOptions& options, const Layout& layout, OpenReport* report,
                                     Ranks& ranks = single_rank());
  // Read-only view of the published generation under shared locks (export, eval, inspect), as one rank: the
  // files of all ranks that wrote it. `layout` says the model; how the store is cut, layout() of what is
  // returned. Refuses, naming the holder, while a run holds the store. paths: where to look for slot files
  // that were moved; empty: where they were created.
  static std::unique_ptr<Store> open_read_only(const std::filesystem::path& run_dir, const Layout& layout,
                                               OpenReport* report,
                                               const std::vector<std::filesystem::path>& paths = {},
                                               bool strict = false);

  virtual ~Store() = default;  // releases the locks; publishes nothing

  virtual const Layout& layout() const = 0;  // of what is stored: its tiles and world
  virtual StepMeta meta() const = 0;        // of the published record
  virtual uint64_t generation() const = 0;  // of the published slot; skips keep it
  virtual int published() const = 0;        // slot
  // Slot that the next generation is written to (durable none: the same). Changes in publish().
  virtual int target() const = 0;
  // tile: index into layout().tiles(); of this rank's shard, else Error(bug) (open_read_only: any). Frozen tiles: the base file, for
  // any slot.
  virtual Extent extent(int slot, uint32_t tile, Part part) const = 0;
  // Of the table (published slot), or as set (target).
  virtual uint64_t hash(int slot, uint32_t tile, Part part) const = 0;
  // For the target slot and its next generation: only between begin_writes and prepare, whenever the bytes
  // were hashed. Last call wins.
  virtual void set_hash(uint32_t tile, Part part, uint64_t hash) = 0;

  // Must precede the first write into the target slot after create, open or a commit, and come after
  // publish() of the commit before (durable none: durable dirty mark). Again before the commit: nothing
  // happens.
  virtual void begin_writes() = 0;
  // C2: tables and header of the target, fdatasync of its files. All extents have been written and every hash
  // set since the last commit (or skip). Not with durable none. Not collective; but a rank that fails here tells those that come to
  // publish().
  virtual void prepare(const StepMeta& meta) = 0;
  // C3-C5: publish what all ranks have prepared, with the same meta; returns when durable. The target becomes the published slot.
  virtual void publish() = 0;
  // SKIP: publish the same slot and generation with new meta. What was written to the target is garbage. Only
  // with durable step; otherwise nothing happens, and the skip travels with the meta of the next commit.
  virtual void skip(const StepMeta& meta) = 0;
  // The same as a commit: no step since the last one has changed a weight, all were skipped. Also with durable checkpoint; not with none.
  virtual void commit_unchanged(const StepMeta& meta) = 0;
  // Clean exit. durable none: flush and clear the dirty mark (meta is stored). Otherwise nothing is
  // published.
  virtual void close(const StepMeta& meta) = 0;
  // Reads and checks this rank's files of the published slot, and its base files, against their tables.
  // Error(disk) naming the first bad extent.
  virtual void verify() = 0;
  virtual std::vector<const io::File*> files() const = 0;  // of extents
};

}  // namespace sluice::offload
