// CREATE: build under RUN/store.tmp, publish, rename. Order of the flushes: docs/store_format.md, "Create".
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/arena.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/units.h"
#include "io/system_error.h"
#include "offload/store.h"
#include "offload/store_failpoint.h"
#include "offload/store_files.h"

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

class Creation {
 public:
  Creation(const StoreOptions& options, const Layout& layout)
      : options_(options),
        layout_(layout),
        geometry_(layout),
        failpoints_(options.failpoint),
        build_(temporary_folder(options.run_dir)) {
    stored_ = describe_layout(layout);
    stored_.uuid = make_uuid();
    stored_.model_digest = options.model_digest;
    stored_.slots = options.durable == Durable::none ? 1 : 2;
    if (options.paths.empty()) {
      data_ = build_;
      stored_.drives = {"."};
    } else {
      data_ = fs::absolute(options.paths[0]).lexically_normal() / data_folder_name(stored_.uuid);
      stored_.drives = {data_};
    }
    layout_text_ = layout_json(stored_, layout);
  }

  void check_space() const;
  void build(const StepMeta& meta, const Store::Fill& fill);
  void discard() { remove_store(build_, options_.observer); }

 private:
  struct NewFile {
    io::File file;
    std::vector<uint64_t> table;
  };
  bool separate_data() const { return data_ != build_; }
  io::File create_file(const fs::path& path, uint64_t bytes) {
    return io::File::create(path, bytes, {.observer = options_.observer});
  }
  NewFile create_data_file(uint32_t slot, const StoreGeometry::FileShape& shape);
  void write_layout();
  void fill_tiles(const Store::Fill& fill, NewFile& slot, NewFile& base);
  uint64_t write_tile(uint32_t index, std::span<std::byte> weights, std::span<std::byte> lo, NewFile& slot);
  void finish(NewFile& file, uint32_t slot, const StoreGeometry::FileShape& shape, const StepMeta& meta);
  void publish_name();

  const StoreOptions& options_;
  const Layout& layout_;
  const StoreGeometry geometry_;
  Failpoints failpoints_;
  ZeroHashes zeros_;
  StoredLayout stored_;
  std::string layout_text_;
  fs::path build_;  // folder of the store: RUN/store.tmp until it gets its name
  fs::path data_;   // folder of the slot files
};

void Creation::check_space() const {
  const uint64_t base = geometry_.base().extents == 0 ? 0 : geometry_.base().file_bytes;
  uint64_t data_need = stored_.slots * geometry_.slot().file_bytes + base;
  const uint64_t run_need = kSuperBytes + base::round_up(layout_text_.size(), kPageBytes) + kPageBytes;
  const auto require = [&](const fs::path& folder, uint64_t need) {
    if (const uint64_t have = io::free_space(folder); have < need)
      fail(ErrorKind::disk,
           "not enough disk space for the store: {} needs {} ({} slot{} of {}, {} for frozen tensors), {} is "
           "free. Free "
           "some, or set storage.paths to a larger drive",
           folder.string(), base::format_bytes(need), stored_.slots, stored_.slots == 1 ? "" : "s",
           base::format_bytes(geometry_.slot().file_bytes), base::format_bytes(base),
           base::format_bytes(have));
  };
  fs::path run = fs::absolute(options_.run_dir).lexically_normal();
  while (!fs::exists(run) && run.has_relative_path()) run = run.parent_path();
  const fs::path data = separate_data() ? data_.parent_path() : run;
  struct stat a {
  }, b{};
  const bool one_disk = stat(run.c_str(), &a) == 0 && stat(data.c_str(), &b) == 0 && a.st_dev == b.st_dev;
  if (one_disk)
    data_need += run_need;
  else
    require(run, run_need);
  require(data, data_need);
}

void Creation::write_layout() {
  io::make_directory(build_, options_.observer);
  const io::File file = create_file(layout_file(build_), layout_text_.size());
  file.write_at(0, std::as_bytes(std::span(layout_text_)));
  file.sync();
  io::sync_directory(build_, options_.observer);
  io::sync_directory(options_.run_dir, options_.observer);
  failpoints_.pass("create.layout");
}

Creation::NewFile Creation::create_data_file(uint32_t slot, const StoreGeometry::FileShape& shape) {
  return {create_file(data_ / slot_file_name(0, 0, slot), shape.file_bytes),
          std::vector<uint64_t>(shape.extents)};
}

// Writes what is not zero; returns the hash of the state extent, or of the base file's weights extent.
uint64_t Creation::write_tile(uint32_t index, std::span<std::byte> weights, std::span<std::byte> lo,
                              NewFile& slot) {
  const Tile& tile = layout_.tiles()[index];
  const StoreGeometry::Place place = geometry_.place(index, Part::weights);
  slot.file.write_at(place.offset, weights);
  slot.table[place.entry] = hash_extent(layout_.schema(), Part::weights, tile, weights);
  if (!tile.trainable) return place.bytes;

  const StoreGeometry::Place state = geometry_.place(index, Part::state);
  std::vector<uint64_t> leaves;
  for (const ExtentField& field : extent_fields(layout_.schema(), Part::state)) {
    const bool given = std::string_view(field.name) == "lo";
    for (uint64_t leaf = 0; leaf < layout_.leaves(tile); ++leaf) {
      const uint64_t bytes = leaf_count(tile, leaf) * field.bytes;
      leaves.push_back(given ? base::xxh3(lo.subspan(leaf * kLeafElements * field.bytes, bytes))
                             : zeros_.leaf(bytes));
    }
  }
  slot.table[state.entry] = extent_hash(leaves);
  if (std::any_of(lo.begin(), lo.end(), [](std::byte b) { return b != std::byte{0}; }))
    slot.file.write_at(state.offset, lo);
  return place.bytes;
}

void Creation::fill_tiles(const Store::Fill& fill, NewFile& slot, NewFile& base) {
  uint64_t largest = 0, total = 0, done = 0;
  for (const Tile& tile : layout_.tiles()) {
    largest = std::max(largest, tile.padded);
    total += extent_bytes(layout_.schema(), Part::weights, tile);
  }
  const bool has_lo = layout_.schema() == Schema::bf16;
  const base::Arena weights(largest * weight_bytes(layout_.schema()), "weights of a tile");
  const base::Arena lo(has_lo ? largest * 2 : 0, "remainders of a tile");
  for (uint32_t i = 0; i < layout_.tiles().size(); ++i) {
    const Tile& tile = layout_.tiles()[i];
    const auto weights_span = weights.span(0, extent_bytes(layout_.schema(), Part::weights, tile));
    const auto lo_span = lo.span(0, has_lo && tile.trainable ? tile.padded * 2 : 0);
    std::fill(weights_span.begin(), weights_span.end(), std::byte{0});
    std::fill(lo_span.begin(), lo_span.end(), std::byte{0});
    fill(tile, weights_span, lo_span);
    done += write_tile(i, weights_span, lo_span, tile.trainable ? slot : base);
    if (options_.progress) options_.progress(done, total);
  }
}

void Creation::finish(NewFile& file, uint32_t slot, const StoreGeometry::FileShape& shape,
                      const StepMeta& meta) {
  SlotHeader header;
  header.uuid = stored_.uuid;
  header.slot = slot;
  header.gen = 1;
  header.extents = shape.extents;
  header.data_offset = shape.data_offset;
  header.file_bytes = shape.file_bytes;
  header.table_hash = table_hash(file.table);
  header.meta = meta;
  header.attempt = process_text();
  header.boot_id = boot_id();
  write_table_and_header(file.file, file.table, header);
  file.file.sync();
}

void Creation::publish_name() {
  const fs::path store = store_folder(options_.run_dir);
  io::rename_path(build_, store, options_.observer);
  if (!separate_data()) data_ = store;
  build_ = store;
  failpoints_.pass("create.renamed");
  io::sync_directory(options_.run_dir, options_.observer);
  failpoints_.pass("create.done");
}

void Creation::build(const StepMeta& meta, const Store::Fill& fill) {
  write_layout();
  if (separate_data()) {
    io::make_directory(data_, options_.observer);
    io::sync_directory(data_.parent_path(), options_.observer);
  }
  const io::File super = create_file(super_file(build_), kSuperBytes);
  NewFile slot = create_data_file(0, geometry_.slot());
  if (options_.strict) report_page_cache(slot.file, true);
  NewFile base;
  if (geometry_.base().extents != 0) base = create_data_file(kBaseSlot, geometry_.base());
  std::vector<NewFile> others;
  for (uint32_t s = 1; s < stored_.slots; ++s) others.push_back(create_data_file(s, geometry_.slot()));
  failpoints_.pass("create.allocated");

  fill_tiles(fill, slot, base);
  failpoints_.pass("create.filled");
  finish(slot, 0, geometry_.slot(), meta);
  if (base.file.valid()) finish(base, kBaseSlot, geometry_.base(), meta);
  for (const NewFile& other : others) other.file.sync();
  failpoints_.pass("create.prepared");

  const uint64_t hash = table_hash(slot.table);
  Record record;
  record.uuid = stored_.uuid;
  record.seq = record.gen = 1;
  record.root = root_hash({&hash, 1});
  record.layout_hash = stored_.layout_hash;
  record.world = stored_.world;
  record.meta = meta;
  super.write_at(record_offset(record.seq), encode_record(record));
  super.sync();
  if (separate_data()) io::sync_directory(data_, options_.observer);
  io::sync_directory(build_, options_.observer);
  failpoints_.pass("create.published");
  publish_name();
}

void check_one_rank(const Ranks& ranks) {
  if (ranks.world() != 1) fail(ErrorKind::config, "a store of {} ranks is not built yet", ranks.world());
}

void check_paths(const StoreOptions& options) {
  if (options.paths.size() > 1)
    fail(ErrorKind::config, "storage.paths has {} entries; more than one drive is not built yet: name one",
         options.paths.size());
  if (!options.paths.empty() && !fs::is_directory(options.paths[0]))
    fail(ErrorKind::config, "storage.paths: {} is no folder. Make it, or mount the drive",
         options.paths[0].string());
}

}  // namespace

std::unique_ptr<Store> Store::create(const StoreOptions& options, const Layout& layout, const StepMeta& meta,
                                     const Fill& fill, Ranks& ranks) {
  check_one_rank(ranks);
  check_paths(options);
  if (exists(options.run_dir))
    fail(ErrorKind::config, "{} already holds a store. Continue it (--resume auto), or use another run.dir",
         options.run_dir.string());
  NewFolders folders(options.observer);
  try {
    folders.make(options.run_dir);
    const RunLock lock(options.run_dir, options.lock_seconds);
    if (exists(options.run_dir))
      fail(ErrorKind::config, "{}: another process has just created a store here", options.run_dir.string());
    remove_leftovers(options.run_dir, options.observer);  // may hold the space that this one needs
    Creation creation(options, layout);
    creation.check_space();
    try {
      creation.build(meta, fill);
    } catch (...) {
      try {
        creation.discard();
      } catch (const std::exception&) {  // the first error tells more; the next create clears the rest
      }
      throw;
    }
    return open(options, layout, nullptr);
  } catch (...) {
    try {
      folders.take_back();
    } catch (const std::exception&) {
    }
    throw;
  }
}

}  // namespace sluice::offload
