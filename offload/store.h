// The durable home of weights and optimizer state: slots of preallocated files, checksum tables, an atomic commit.
// Bytes: docs/store_format.md. State machine: the same page, "State machine".
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/disk_queue.h"
#include "io/file.h"
#include "offload/layout.h"

namespace sluice::offload {

enum class Durable : uint8_t { step, checkpoint, none };

// What a record carries beside the bytes; fixed size, little endian on disk.
struct StepMeta {
  uint64_t step = 0;     // completed steps
  uint64_t samples = 0;  // consumed, global
  uint64_t tokens = 0;
  uint64_t seed = 0;
  uint64_t skipped = 0;  // steps skipped for non-finite gradients
  double lr = 0;
  // room for loss-scaler state
};

struct StoreOptions {
  std::filesystem::path run_dir;             // holds store/SUPER and store/layout.json
  std::vector<std::filesystem::path> paths;  // drives for slot files; empty: run_dir/store. One for now: more is Error(config)
  Durable durable = Durable::step;
  std::string model_digest;                  // hex; of the source model. Another model: Error(disk)
  double lock_seconds = 30;
  bool verify_on_open = false;               // always verify the whole published slot
};

enum class Part : uint8_t { weights, state };

struct Extent {
  const io::File* file = nullptr;
  uint64_t offset = 0;
  uint64_t bytes = 0;  // padded, multiple of 4 KiB
};

// What OPEN found, for one line to the user each.
struct OpenReport {
  StepMeta meta;
  std::vector<std::string> notes;  // damaged other record, verified slot, cleared leftovers, ...
};

// One rank. Not thread-safe except extent() and set_hash() (different tiles). Errors: Error(disk), with what, where, and what to do.
class Store {
 public:
  static bool exists(const std::filesystem::path& run_dir);

  // CREATE. `fill` is called for every tile in order, with host buffers of the extent sizes to fill with the initial weights
  // extent and the lo field (zero-filled before the call; m and v stay unwritten = zero); frozen tiles: weights only, into the
  // base file. Peak memory: one tile. On any error nothing is left behind but what existed before.
  using Fill = std::function<void(const Tile& tile, std::span<std::byte> weights, std::span<std::byte> lo)>;
  static std::unique_ptr<Store> create(const StoreOptions& options, const Layout& layout, const StepMeta& meta, const Fill& fill);

  // OPEN, exclusive. Leaves the store untouched when it refuses.
  static std::unique_ptr<Store> open(const StoreOptions& options, const Layout& layout, OpenReport* report);
  // Read-only view of the published generation under shared locks (export, eval, inspect). Refuses, naming the holder,
  // while a run holds the store.
  static std::unique_ptr<Store> open_read_only(const std::filesystem::path& run_dir, const Layout& layout, OpenReport* report);

  virtual ~Store() = default;  // releases locks; with durable none and a clean close() the dirty mark is already cleared

  virtual StepMeta meta() const = 0;      // of the published record
  virtual uint64_t generation() const = 0;
  virtual int published() const = 0;      // slot
  virtual int target() const = 0;         // slot that the next generation is written to (durable none: the same)
  virtual Extent extent(int slot, uint32_t tile, Part part) const = 0;  // tile: index into layout.tiles(); frozen: base file, any slot
  virtual uint64_t hash(int slot, uint32_t tile, Part part) const = 0;  // of the table (published slot, or as set)
  virtual void set_hash(uint32_t tile, Part part, uint64_t hash) = 0;   // for the target slot, next generation

  // Must precede the first write into the target slot after create, open or a commit (durable none: durable dirty mark).
  virtual void begin_writes() = 0;
  // C2: tables and header of the target, fdatasync of its files. All extents have been written and every hash set.
  virtual void prepare(const StepMeta& meta) = 0;
  // C3-C5: publish what was prepared; returns when durable. The target becomes the published slot.
  virtual void publish() = 0;
  // SKIP: publish the same slot and generation with new meta.
  virtual void skip(const StepMeta& meta) = 0;
  // Clean exit. durable none: flush and clear the dirty mark (meta is stored).
  virtual void close(const StepMeta& meta) = 0;
  // Reads and checks the whole published slot against its table. Error(disk) naming the first bad extent.
  virtual void verify() = 0;
  virtual std::vector<const io::File*> files() const = 0;
};

// Hash of an extent from its fields' leaf hashes, in (field, leaf) order.
uint64_t extent_hash(std::span<const uint64_t> leaf_hashes);

}  // namespace sluice::offload
