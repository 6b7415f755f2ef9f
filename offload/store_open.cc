// OPEN: locks, record, checks, repair of the record, leftovers; then RESHARD where it must be. Rules: docs/store_format.md, "Open".
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/hash.h"
#include "base/units.h"
#include "offload/store_impl.h"
#include "offload/store_open.h"
#include "offload/store_reshard.h"
#include "offload/store_shares.h"
#include "offload/store_verify.h"

namespace sluice::offload {
namespace {

namespace fs = std::filesystem;
using base::ErrorKind;
using base::fail;

constexpr double kReaderLockSeconds = 1;

[[noreturn]] void refuse_dirty(const StoreFiles& files, const Record& record) {
  fail(ErrorKind::disk,
       "{}: a run with durable: none ended while it was changing its only slot after step {}; what is "
       "there is a mixture "
       "and cannot be used. Start again in another run.dir, or remove this one; storage.durable: step "
       "survives a crash",
       files.store.string(), record.meta.step);
}

struct TakenRecord {
  Record record;
  bool other_is_sound = true;  // the record before it, or never written because this is the first
  std::string note;
};

// OPEN 2.
TakenRecord take_record(const io::File& super, const StoredLayout& stored) {
  const std::string path = super.path().string();
  std::array<Record, 2> records;
  std::array<PageState, 2> states;
  for (uint64_t i = 0; i < 2; ++i) {
    Page page;
    super.read_at(record_offset(i), page);
    states[i] = decode_record(page, &records[i]);
    if (states[i] == PageState::other_version)
      fail(ErrorKind::disk, "{}: written by a version of sluice whose format this one does not know", path);
    if (states[i] == PageState::valid && ((records[i].seq & 1) != i || records[i].uuid != stored.uuid))
      states[i] = PageState::damaged;
  }
  const auto valid = [&](size_t i) { return states[i] == PageState::valid; };
  if (!valid(0) && !valid(1))
    fail(ErrorKind::disk,
         "{}: neither of the two records is valid; nothing says which slot is whole. Restore the store from "
         "a copy, or "
         "start again in another run.dir",
         path);
  const size_t best = valid(1) && (!valid(0) || records[1].seq > records[0].seq) ? 1 : 0;
  TakenRecord taken{records[best], true, ""};
  const PageState other = states[1 - best];
  const uint64_t seq = taken.record.seq;
  taken.other_is_sound =
      seq == 1 ? other == PageState::empty : other == PageState::valid && records[1 - best].seq == seq - 1;
  if (!taken.other_is_sound)
    taken.note = fmt::format(
        "{}: the other record is damaged; it may have held step {} or the step before this one. The store is "
        "at "
        "step {}",
        path, taken.record.meta.step + 1, taken.record.meta.step);
  return taken;
}

// OPEN 2, on rank 0; what all need of it.
struct Found {
  Record record;
  bool other_is_sound = true;
};
Found find_record(const StoreFiles& files, Ranks& ranks, OpenReport& report) {
  const Bytes message = ranks.from_first("reading the record", [&] {
    const TakenRecord taken = take_record(files.super, files.stored);
    if (!taken.note.empty()) report.notes.push_back(taken.note);
    if (taken.record.layout_hash != files.stored.layout_hash || taken.record.world != files.stored.world)
      fail(ErrorKind::disk, "{}: record and layout.json disagree", files.store.string());
    if ((taken.record.flags & Record::kDirty) != 0) refuse_dirty(files, taken.record);
    if (taken.record.slot >= files.stored.slots)
      fail(ErrorKind::disk, "{}: the record names slot {}, there is none", files.super.path().string(), taken.record.slot);
    const Page page = encode_record(taken.record);
    Bytes bytes(page.begin(), page.end());
    bytes.push_back(std::byte{taken.other_is_sound});
    return bytes;
  });
  Found found;
  SLUICE_CHECK(message.size() == kPageBytes + 1 &&
                   decode_record(std::span(message).first<kPageBytes>(), &found.record) == PageState::valid,
               "the record did not arrive");
  found.other_is_sound = message.back() != std::byte{0};
  return found;
}

// OPEN 3 for the files of one rank on one drive: fills the tables. Returns the header.
SlotHeader check_files(const StoreFiles& files, const Record& record, const StoreGeometry& geometry, DataFiles& data) {
  const StoreGeometry::FileShape& shape = geometry.slot(data.rank, data.drive);
  for (const io::File& file : data.slots)
    if (file.size() != shape.file_bytes)
      fail(ErrorKind::disk, "{}: the file has {} bytes, the store needs {}", file.path().string(),
           file.size(), shape.file_bytes);
  SlotHeader expected;
  expected.uuid = files.stored.uuid;
  expected.rank = data.rank;
  expected.drive = data.drive;
  expected.slot = record.slot;
  const io::File& slot = data.slots[record.slot];
  const SlotHeader header = read_header_and_table(slot, shape, expected, &data.table);
  if ((header.flags & kSlotDirty) != 0) refuse_dirty(files, record);
  if (header.gen != record.gen)
    fail(ErrorKind::disk,
         "{}: holds generation {}, the record says {}. The slot was overwritten after the record was "
         "published",
         slot.path().string(), header.gen, record.gen);
  if (geometry.base(data.rank, data.drive).extents != 0) {
    if (!data.base.valid())
      fail(ErrorKind::disk, "{}: the base file of the frozen tensors is missing",
           (files.folders[data.drive] / slot_file_name(data.rank, data.drive, kBaseSlot)).string());
    expected.slot = kBaseSlot;
    read_header_and_table(data.base, geometry.base(data.rank, data.drive), expected, &data.base_table);
  }
  return header;
}

// OPEN 3. Whether all files were last written since the boot of the machine that has them now.
bool check_slot(const StoreGeometry& geometry, const Layout& layout, OpenedStore& opened, Ranks& ranks) {
  const StoreFiles& files = opened.files;
  const std::vector<Bytes> checked = ranks.exchange("checking slot files", [&] {
    std::vector<uint64_t> words;  // (rank, drive, table hash, this boot) of each
    for (DataFiles& data : opened.files.data) {
      const SlotHeader header = check_files(files, opened.record, geometry, data);
      words.insert(words.end(), {data.rank, data.drive, header.table_hash, !header.boot_id.empty() && header.boot_id == boot_id()});
    }
    return bytes_of(words);
  });
  bool this_boot = true;
  size_t seen = 0;
  opened.table_hashes.assign(layout.world() * geometry.drives(), 0);
  for (const Bytes& bytes : checked) {
    const std::vector<uint64_t> words = words_of(bytes);
    for (size_t i = 0; i + 4 <= words.size(); i += 4, ++seen) {
      opened.table_hashes.at(words[i] * geometry.drives() + words[i + 1]) = words[i + 2];
      this_boot = this_boot && words[i + 3] != 0;
    }
  }
  SLUICE_CHECK(seen == opened.table_hashes.size(), "not every slot file has a rank that checks it");
  if (root_hash(opened.table_hashes) != opened.record.root)
    fail(ErrorKind::disk, "{}: {} not the one that was published", files.store.string(),
         seen == 1 ? fmt::format("the table of {} is", slot_file_name(0, 0, opened.record.slot))
                   : fmt::format("the table of one of its {} files of slot {} is", seen, opened.record.slot));
  return this_boot;
}

// OPEN 2 to 4. layout: the one it was written with.
OpenedStore check_store(StoreFiles files, const Layout& layout, const StoreOptions& options, Ranks& ranks,
                        OpenReport& report) {
  OpenedStore opened;
  opened.files = std::move(files);
  const Found found = find_record(opened.files, ranks, report);
  opened.record = found.record;
  report.meta = found.record.meta;
  const StoreGeometry geometry(layout, opened.files.stored.shares);
  const bool this_boot = check_slot(geometry, layout, opened, ranks);
  if (!options.verify_on_open && found.other_is_sound && this_boot) return opened;
  ranks.agree("verifying the store", [&] {
    std::vector<const DataFiles*> data;
    for (const DataFiles& d : opened.files.data) data.push_back(&d);
    verify_extents({.layout = layout,
                    .geometry = geometry,
                    .data = data,
                    .slot = opened.record.slot,
                    .progress = options.progress});
  });
  uint64_t bytes = 0;
  for (uint32_t r = 0; r < layout.world(); ++r) bytes += geometry.slot_bytes(r);
  if (ranks.rank() == 0)
    report.notes.push_back(fmt::format("{}: verified {} of step {} ({})", opened.files.store.string(), base::format_bytes(bytes),
                                       opened.record.meta.step,
                                       !found.other_is_sound ? "the other record is damaged"
                                       : !this_boot ? "the machine was started again since it was written"
                                                    : "as asked"));
  return opened;
}

// OPEN 5: until this is durable, nothing may be written that the fallback state could need.
void rewrite_record(const OpenedStore& opened, Failpoints& failpoints, const StoreOptions& options, Ranks& ranks,
                    OpenReport& report) {
  const fs::path& run_dir = options.run_dir;
  ranks.agree("rewriting the record", [&] {
    if (ranks.rank() == 0) {
      const Record& record = opened.record;
      opened.files.super.write_at(record_offset(record.seq), encode_record(record));
      failpoints.pass("open.rewritten");
      opened.files.super.sync();
    }
    for (const DataFiles& data : opened.files.data)
      for (const io::File& slot : data.slots) slot.sync();
    if (ranks.rank() != 0) return;
    io::sync_directory(run_dir, options.observer);
    if (fs::exists(run_dir / "checkpoints")) io::sync_directory(run_dir / "checkpoints", options.observer);
  });
  const RemoveOptions remove{.paths = options.paths, .keep = opened.files.stored.uuid, .observer = options.observer};
  const auto clear = [&](const fs::path& folder, const char* what) {
    if (remove_store(folder, remove, ranks) && ranks.rank() == 0)
      report.notes.push_back(fmt::format("removed {}: {}", folder.string(), what));
  };
  clear(temporary_folder(run_dir), "a store whose creation was interrupted");
  clear(rewritten_folder(run_dir), "left by a rewriting of the store that was interrupted");
  ranks.on_first("naming the holder", [&] { write_holder(opened.files.store); });
}

void report_drives(const StoreFiles& files, bool strict) {
  for (const DataFiles& data : files.data)
    if (data.rank == files.data.front().rank) report_page_cache(data.slots.front(), strict);
}

OpenedStore open_as_it_is(StoreFiles files, const Layout& layout, const StoreOptions& options, Failpoints& failpoints, Ranks& ranks,
                          OpenReport& report) {
  OpenedStore opened = check_store(std::move(files), layout, options, ranks, report);
  ranks.agree("having checked the store", [&] { failpoints.pass("open.checked"); });
  rewrite_record(opened, failpoints, options, ranks, report);
  return opened;
}

std::string reshard_text(const std::vector<std::string>& changes, const StoreFiles& files, const Layout& layout) {
  const bool world = files.stored.world != layout.world();
  return fmt::format("{}: rewritten for {}; every bit of the state is kept{}", files.store.string(), fmt::join(changes, ", "),
                     world ? ", but with another number of ranks gradients are summed in another order: later bits differ from those of a "
                             "run that had not changed it, by rounding"
                           : ", and so are all later bits");
}

}  // namespace

void check_same_options(const StoreOptions& options, const Layout& layout, Ranks& ranks) {
  SLUICE_CHECK(layout.world() == static_cast<uint32_t>(ranks.world()), "the layout is cut for another number of ranks");
  std::string text = options.model_digest;
  for (const fs::path& path : options.paths) text += "\n" + path.string();
  if (!options.drive_rates.empty()) text += fmt::format("\n{}", fmt::join(shares_of(options.drive_rates), " "));
  const std::vector<uint64_t> own = {layout.digest(), options.durable == Durable::none, base::xxh3(text.data(), text.size())};
  const std::vector<Bytes> all = ranks.exchange("comparing the configs", [&] { return bytes_of(own); });
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r] != all[0])
      fail(ErrorKind::config,
           "rank {} was started with another config than rank 0: model, trainable tensors, storage.tile, storage.paths, "
           "storage.drive_rates and storage.durable must be the same on all ranks",
           r);
}

bool Store::exists(const fs::path& run_dir) {
  return fs::exists(store_folder(run_dir));
}

std::unique_ptr<Store> Store::open(const StoreOptions& options, const Layout& layout, OpenReport* report,
                                   Ranks& ranks) {
  OpenReport local;
  OpenReport& found = report != nullptr ? *report : local;
  check_same_options(options, layout, ranks);
  std::optional<Failpoints> failpoints;
  ranks.agree("reading SLUICE_FAILPOINT", [&] { failpoints.emplace(options.failpoint); });
  StoreFiles files = lock_store(options.run_dir,
                                {.mode = io::LockMode::exclusive,
                                 .seconds = options.lock_seconds,
                                 .paths = options.paths,
                                 .observer = options.observer},
                                ranks);
  std::optional<Layout> stored;
  ranks.agree("comparing the models", [&] {
    failpoints->pass("open.locked");
    report_drives(files, options.strict);
    check_model(files.stored, layout, options.model_digest);
    stored = stored_layout(files.stored, layout);
  });
  const std::vector<std::string> changes = differences(files, options, layout, ranks);
  OpenedStore opened = open_as_it_is(std::move(files), *stored, options, *failpoints, ranks, found);
  if (!changes.empty()) {
    if (ranks.rank() == 0) {
      spdlog::info("rewriting the store for {}", fmt::join(changes, ", "));
      found.notes.push_back(reshard_text(changes, opened.files, layout));
    }
    opened = reshard(opened, *stored, options, layout, ranks, *failpoints);
  }
  ranks.agree("having opened the store", [&] { failpoints->pass("open.done"); });
  return std::make_unique<FileStore>(std::move(opened), layout, ranks, std::move(*failpoints),
                                     FileStore::Options{false, options.durable, options.progress});
}

std::unique_ptr<Store> Store::open_read_only(const fs::path& run_dir, const Layout& layout,
                                             OpenReport* report, const std::vector<fs::path>& paths,
                                             bool strict) {
  OpenReport local;
  OpenReport& found = report != nullptr ? *report : local;
  Ranks& ranks = single_rank();
  StoreFiles files = lock_store(
      run_dir, {.mode = io::LockMode::shared, .seconds = kReaderLockSeconds, .paths = paths, .all_ranks = true}, ranks);
  report_drives(files, strict);
  check_model(files.stored, layout, files.stored.model_digest);
  const Layout stored = stored_layout(files.stored, layout);
  OpenedStore opened = check_store(std::move(files), stored, {}, ranks, found);
  return std::make_unique<FileStore>(std::move(opened), stored, ranks, Failpoints({}), FileStore::Options{.read_only = true});
}

}  // namespace sluice::offload
