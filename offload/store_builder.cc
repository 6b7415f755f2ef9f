#include "offload/store_builder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/arena.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/units.h"
#include "io/system_error.h"
#include "offload/store_shares.h"

namespace sluice::offload {
namespace {

namespace fs = std::filesystem;
using base::ErrorKind;
using base::fail;

StoredLayout describe_store(const StoreOptions& options, const Layout& layout, Ranks& ranks) {
  StoredLayout stored = describe_layout(layout);
  const Bytes uuid = ranks.from_first("naming the store", [] {
    const Uuid made = make_uuid();
    return Bytes(made.begin(), made.end());
  });
  std::copy_n(uuid.begin(), stored.uuid.size(), stored.uuid.begin());
  const Bytes shares = ranks.from_first("sharing out the store over its drives", [&] {
    const std::vector<uint32_t> chosen = choose_shares(options);
    const std::vector<uint64_t> words(chosen.begin(), chosen.end());
    return bytes_of(words);
  });
  for (const uint64_t share : words_of(shares)) stored.shares.push_back(static_cast<uint32_t>(share));
  stored.model_digest = options.model_digest;
  stored.slots = options.durable == Durable::none ? 1 : 2;
  for (const fs::path& path : options.paths)
    stored.drives.push_back(fs::absolute(path).lexically_normal() / data_folder_name(stored.uuid));
  if (stored.drives.empty()) stored.drives = {"."};
  return stored;
}

fs::path existing_part(const fs::path& path) {
  fs::path folder = fs::absolute(path).lexically_normal();
  while (!fs::exists(folder) && folder.has_relative_path()) folder = folder.parent_path();
  return folder;
}

// The same number for the same file system of the same machine.
uint64_t disk_of(const fs::path& folder) {
  struct stat info {};
  if (stat(folder.c_str(), &info) != 0) fail(ErrorKind::disk, "cannot look at {}: {}", folder.string(), io::errno_text(errno));
  const std::string name = fmt::format("{} {}", boot_id(), info.st_dev);
  return base::xxh3(name.data(), name.size());
}

struct Need {
  fs::path folder;
  uint64_t disk, bytes;
};

}  // namespace

StoreBuilder::StoreBuilder(const StoreOptions& options, const Layout& layout, Ranks& ranks, Failpoints& failpoints, fs::path folder,
                           std::string prefix)
    : options_(options),
      layout_(layout),
      ranks_(ranks),
      failpoints_(failpoints),
      folder_(std::move(folder)),
      prefix_(std::move(prefix)),
      rank_(static_cast<uint32_t>(ranks.rank())),
      stored_(describe_store(options, layout, ranks)),
      geometry_(layout, stored_.shares) {
  if (rank_ == 0) layout_text_ = layout_json(stored_, layout);
}

void StoreBuilder::check_space() const {
  std::vector<Need> needs;
  const std::vector<Bytes> all = ranks_.exchange("looking for disk space", [&] {
    const fs::path run = existing_part(options_.run_dir);
    if (rank_ == 0) needs.push_back({run, disk_of(run), kSuperBytes + base::round_up(layout_text_.size(), kPageBytes) + kPageBytes});
    for (uint32_t d = 0; d < geometry_.drives(); ++d) {
      const fs::path folder = separate_data() ? existing_part(options_.paths[d]) : run;
      const StoreGeometry::FileShape& base = geometry_.base(rank_, d);
      needs.push_back({folder, disk_of(folder),
                       stored_.slots * geometry_.slot(rank_, d).file_bytes + (base.extents == 0 ? 0 : base.file_bytes)});
    }
    std::vector<uint64_t> words;
    for (const Need& need : needs) words.insert(words.end(), {need.disk, need.bytes});
    return bytes_of(words);
  });
  uint64_t slot = 0, base = 0;
  for (uint32_t r = 0; r < layout_.world(); ++r) {
    slot += geometry_.slot_bytes(r);
    base += geometry_.base_bytes(r);
  }
  ranks_.agree("checking disk space", [&] {
    for (const Need& own : needs) {
      uint64_t need = 0;
      for (const Bytes& bytes : all) {
        const std::vector<uint64_t> words = words_of(bytes);
        for (size_t i = 0; i < words.size(); i += 2) need += words[i] == own.disk ? words[i + 1] : 0;
      }
      if (const uint64_t have = io::free_space(own.folder); have < need)
        fail(ErrorKind::disk,
             "not enough disk space for the store: {} needs {} (in all {} slot{} of {}, {} for frozen tensors), {} is "
             "free. Free some, or set storage.paths to a larger drive{}",
             own.folder.string(), base::format_bytes(need), stored_.slots, stored_.slots == 1 ? "" : "s", base::format_bytes(slot),
             base::format_bytes(base), base::format_bytes(have),
             prefix_ == "create" && stored_.slots > 1 ? ", or storage.durable to \"none\": a store of one slot, which is lost with a crash" : "");
    }
  });
}

void StoreBuilder::write_layout() {
  io::make_directory(folder_, options_.observer);
  const io::File file = create_file(layout_file(folder_), layout_text_.size());
  file.write_at(0, std::as_bytes(std::span(layout_text_)));
  file.sync();
  io::sync_directory(folder_, options_.observer);
  io::sync_directory(folder_.parent_path(), options_.observer);
  failpoints_.pass(prefix_ + ".layout");
}

void StoreBuilder::make_data_files() {
  if (!fs::exists(layout_file(folder_)))
    fail(ErrorKind::disk, "{} is not there, but rank 0 has written it: run.dir must be on a file system that all ranks share",
         layout_file(folder_).string());
  if (rank_ == 0) super_ = create_file(super_file(folder_), kSuperBytes);
  for (uint32_t d = 0; d < geometry_.drives(); ++d) {
    const fs::path folder = data_folder(d);
    if (separate_data()) {
      io::ensure_directory(folder, options_.observer);
      io::sync_directory(folder.parent_path(), options_.observer);
    }
    DataFiles& files = data_.emplace_back();
    files.rank = rank_;
    files.drive = d;
    for (uint32_t s = 0; s < stored_.slots; ++s)
      files.slots.push_back(create_file(folder / slot_file_name(rank_, d, s), geometry_.slot(rank_, d).file_bytes));
    if (options_.strict) report_page_cache(files.slots[0], true);
    files.table.resize(geometry_.slot(rank_, d).extents);
    files.base_table.resize(geometry_.base(rank_, d).extents);
    if (!files.base_table.empty())
      files.base = create_file(folder / slot_file_name(rank_, d, kBaseSlot), geometry_.base(rank_, d).file_bytes);
  }
  failpoints_.pass(prefix_ + ".allocated");
}

void StoreBuilder::make_files() {
  ranks_.on_first("writing layout.json", [&] { write_layout(); });
  ranks_.agree("making slot files", [&] { make_data_files(); });
}

// Writes what is not zero; returns the bytes of the weights extent.
uint64_t StoreBuilder::write_tile(uint32_t index, std::span<std::byte> weights, std::span<std::byte> state) {
  const Tile& tile = layout_.tiles()[index];
  const StoreGeometry::Place place = geometry_.place(index, Part::weights);
  DataFiles& files = own_files(place.drive);
  (place.base ? files.base : files.slots[0]).write_at(place.offset, weights);
  (place.base ? files.base_table : files.table)[place.entry] = hash_extent(layout_.schema(), Part::weights, tile, weights);
  if (!tile.trainable) return place.bytes;

  const StoreGeometry::Place at = geometry_.place(index, Part::state);
  DataFiles& state_files = own_files(at.drive);
  std::vector<uint64_t> leaves;
  uint64_t begin = 0;  // of the field
  for (const ExtentField& field : extent_fields(layout_.schema(), Part::state)) {
    const bool given = begin < state.size();
    for (uint64_t leaf = 0; leaf < layout_.leaves(tile); ++leaf) {
      const uint64_t bytes = leaf_count(tile, leaf) * field.bytes;
      leaves.push_back(given ? base::xxh3(state.subspan(begin + leaf * kLeafElements * field.bytes, bytes)) : zeros_.leaf(bytes));
    }
    begin += tile.padded * field.bytes;
  }
  state_files.table[at.entry] = extent_hash(leaves);
  if (std::any_of(state.begin(), state.end(), [](std::byte b) { return b != std::byte{0}; }))
    state_files.slots[0].write_at(at.offset, state);
  return place.bytes;
}

void StoreBuilder::fill(uint64_t state_bytes, const Content& content) {
  ranks_.agree("filling the store", [&] {
    uint64_t largest = 0, total = 0, done = 0;
    for (const Tile& tile : layout_.tiles()) {
      if (tile.shard != rank_) continue;
      largest = std::max(largest, tile.padded);
      total += extent_bytes(layout_.schema(), Part::weights, tile);
    }
    const base::Arena weights(largest * weight_bytes(layout_.schema()), "weights of a tile");
    const base::Arena state(largest * state_bytes, "optimizer state of a tile");
    for (uint32_t i = 0; i < layout_.tiles().size(); ++i) {
      const Tile& tile = layout_.tiles()[i];
      if (tile.shard != rank_) continue;
      const auto weights_span = weights.span(0, extent_bytes(layout_.schema(), Part::weights, tile));
      const auto state_span = state.span(0, tile.trainable ? tile.padded * state_bytes : 0);
      std::fill(weights_span.begin(), weights_span.end(), std::byte{0});
      std::fill(state_span.begin(), state_span.end(), std::byte{0});
      content(i, weights_span, state_span);
      done += write_tile(i, weights_span, state_span);
      if (options_.progress) options_.progress(done, total);
    }
    failpoints_.pass(prefix_ + ".filled");
  });
}

void StoreBuilder::finish(DataFiles& files, uint32_t slot, const StepMeta& meta) {
  const bool base = slot == kBaseSlot;
  const std::vector<uint64_t>& table = base ? files.base_table : files.table;
  SlotHeader header = new_header(base ? geometry_.base(rank_, files.drive) : geometry_.slot(rank_, files.drive), table, meta);
  header.uuid = stored_.uuid;
  header.rank = rank_;
  header.drive = files.drive;
  header.slot = slot;
  header.gen = 1;
  const io::File& file = base ? files.base : files.slots[slot];
  write_table_and_header(file, table, header);
  file.sync();
}

void StoreBuilder::publish(const StepMeta& meta) {
  const std::vector<Bytes> tables = ranks_.exchange("preparing the store", [&] {
    std::vector<uint64_t> hashes;
    for (DataFiles& files : data_) {
      finish(files, 0, meta);
      if (files.base.valid()) finish(files, kBaseSlot, meta);
      for (uint32_t s = 1; s < stored_.slots; ++s) files.slots[s].sync();
      if (separate_data()) io::sync_directory(data_folder(files.drive), options_.observer);
      hashes.push_back(table_hash(files.table));
    }
    failpoints_.pass(prefix_ + ".prepared");
    return bytes_of(hashes);
  });
  for (const Bytes& bytes : tables)
    for (const uint64_t hash : words_of(bytes)) table_hashes_.push_back(hash);
  record_.uuid = stored_.uuid;
  record_.seq = record_.gen = 1;
  record_.root = root_hash(table_hashes_);
  record_.layout_hash = stored_.layout_hash;
  record_.world = stored_.world;
  record_.meta = meta;
  ranks_.on_first("publishing the store", [&] {
    super_.write_at(record_offset(record_.seq), encode_record(record_));
    super_.sync();
    io::sync_directory(folder_, options_.observer);
    failpoints_.pass(prefix_ + ".published");
  });
}

void StoreBuilder::lock() {
  ranks_.agree("locking the new store", [&] {
    const auto take_lock = [](const io::File& file) {
      if (!file.try_lock(io::LockMode::exclusive))
        fail(ErrorKind::disk, "{}: another process has locked a file that was only just made", file.path().string());
    };
    if (rank_ == 0) take_lock(super_);
    for (const DataFiles& files : data_)
      for (const io::File& slot : files.slots) take_lock(slot);
    failpoints_.pass(prefix_ + ".locked");
  });
}

OpenedStore StoreBuilder::take(const fs::path& store) {
  folder_ = store;
  OpenedStore opened;
  if (rank_ == 0) super_.set_path(super_file(store));
  for (DataFiles& files : data_) {
    opened.files.folders.push_back(data_folder(files.drive));
    const auto rename = [&](io::File& file) { file.set_path(data_folder(files.drive) / file.path().filename()); };
    for (io::File& slot : files.slots) rename(slot);
    if (files.base.valid()) rename(files.base);
  }
  opened.files.stored = stored_;
  opened.files.store = store;
  opened.files.super = std::move(super_);
  opened.files.data = std::move(data_);
  opened.record = record_;
  opened.table_hashes = table_hashes_;
  return opened;
}

void StoreBuilder::discard() noexcept {
  try {
    super_ = io::File();
    data_.clear();
    ranks_.agree("giving up the store", [&] { remove_data(stored_, {.observer = options_.observer}); });
    ranks_.on_first("removing the store that was given up", [&] {
      io::remove_tree(folder_, options_.observer);
      io::sync_directory(folder_.parent_path(), options_.observer);
    });
  } catch (const std::exception&) {  // the error that led here tells more
  }
}

}  // namespace sluice::offload
