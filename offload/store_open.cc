// OPEN: locks, record, checks, repair of the record, leftovers. Rules: docs/store_format.md, "Open".
#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/units.h"
#include "offload/store_impl.h"
#include "offload/store_verify.h"

namespace sluice::offload {
namespace {

namespace fs = std::filesystem;
using base::ErrorKind;
using base::fail;

constexpr double kReaderLockSeconds = 1;

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

// OPEN 3. Fills the tables; says whether the slot was last written since this machine's boot.
bool check_slot(const StoreGeometry& geometry, OpenedStore& opened) {
  const Record& record = opened.record;
  const StoreFiles& files = opened.files;
  const std::string path = files.super.path().string();
  if (record.slot >= files.slots.size())
    fail(ErrorKind::disk, "{}: the record names slot {}, there is none", path, record.slot);
  for (const io::File& file : files.slots)
    if (file.size() != geometry.slot().file_bytes)
      fail(ErrorKind::disk, "{}: the file has {} bytes, the store needs {}", file.path().string(),
           file.size(), geometry.slot().file_bytes);
  SlotHeader expected;
  expected.uuid = files.stored.uuid;
  expected.slot = record.slot;
  const io::File& slot = files.slots[record.slot];
  const SlotHeader header = read_header_and_table(slot, geometry.slot(), expected, &opened.table);
  if (header.gen != record.gen)
    fail(ErrorKind::disk,
         "{}: holds generation {}, the record says {}. The slot was overwritten after the record was "
         "published",
         slot.path().string(), header.gen, record.gen);
  if (root_hash({&header.table_hash, 1}) != record.root)
    fail(ErrorKind::disk, "{}: its table is not the one that was published", slot.path().string());
  if (geometry.base().extents != 0) {
    if (!files.base.valid())
      fail(ErrorKind::disk, "{}: the base file of the frozen tensors is missing",
           (files.data / slot_file_name(0, 0, kBaseSlot)).string());
    expected.slot = kBaseSlot;
    read_header_and_table(files.base, geometry.base(), expected, &opened.base_table);
  }
  return !header.boot_id.empty() && header.boot_id == boot_id();
}

// OPEN 2 to 4.
OpenedStore check_store(StoreFiles files, const Layout& layout, const StoreOptions& options,
                        OpenReport& report) {
  OpenedStore opened;
  opened.files = std::move(files);
  const TakenRecord taken = take_record(opened.files.super, opened.files.stored);
  opened.record = taken.record;
  report.meta = taken.record.meta;
  if (!taken.note.empty()) report.notes.push_back(taken.note);
  const std::string store = opened.files.store.string();
  if (opened.record.layout_hash != opened.files.stored.layout_hash ||
      opened.record.world != opened.files.stored.world)
    fail(ErrorKind::disk, "{}: record and layout.json disagree", store);
  if ((opened.record.flags & Record::kDirty) != 0)
    fail(ErrorKind::disk,
         "{}: a run with durable: none ended while it was changing its only slot after step {}; what is "
         "there is a mixture "
         "and cannot be used. Start again in another run.dir, or remove this one; storage.durable: step "
         "survives a crash",
         store, opened.record.meta.step);
  const StoreGeometry geometry(layout);
  const bool this_boot = check_slot(geometry, opened);
  const bool verify = options.verify_on_open || !taken.other_is_sound || !this_boot;
  if (verify) {
    verify_extents({.layout = layout,
                    .geometry = geometry,
                    .slot = &opened.files.slots[opened.record.slot],
                    .table = opened.table,
                    .base = opened.files.base.valid() ? &opened.files.base : nullptr,
                    .base_table = opened.base_table,
                    .progress = options.progress});
    report.notes.push_back(fmt::format("{}: verified {} of step {} ({})", store,
                                       base::format_bytes(geometry.slot().file_bytes),
                                       opened.record.meta.step,
                                       !taken.other_is_sound ? "the other record is damaged"
                                       : !this_boot ? "the machine was started again since it was written"
                                                    : "as asked"));
  }
  return opened;
}

// OPEN 5: until this is durable, nothing may be written that the fallback state could need.
void rewrite_record(const OpenedStore& opened, Failpoints& failpoints, const fs::path& run_dir,
                    const StoreOptions& options, OpenReport& report) {
  const Record& record = opened.record;
  opened.files.super.write_at(record_offset(record.seq), encode_record(record));
  failpoints.pass("open.rewritten");
  opened.files.super.sync();
  for (const io::File& slot : opened.files.slots) slot.sync();
  io::sync_directory(run_dir, options.observer);
  if (fs::exists(run_dir / "checkpoints")) io::sync_directory(run_dir / "checkpoints", options.observer);
  if (remove_leftovers(run_dir, options.observer))
    report.notes.push_back(fmt::format("removed {}: a store whose creation was interrupted",
                                       temporary_folder(run_dir).string()));
  write_holder(opened.files.store);
}

}  // namespace

bool Store::exists(const fs::path& run_dir) {
  return fs::exists(store_folder(run_dir));
}

std::unique_ptr<Store> Store::open(const StoreOptions& options, const Layout& layout, OpenReport* report,
                                   Ranks& ranks) {
  if (ranks.world() != 1) fail(ErrorKind::config, "a store of {} ranks is not built yet", ranks.world());
  if (options.paths.size() > 1)
    fail(ErrorKind::config, "storage.paths has {} entries; more than one drive is not built yet: name one",
         options.paths.size());
  OpenReport local;
  OpenReport& found = report != nullptr ? *report : local;
  Failpoints failpoints(options.failpoint);
  StoreFiles files = lock_store(options.run_dir, {.mode = io::LockMode::exclusive,
                                                  .seconds = options.lock_seconds,
                                                  .paths = options.paths,
                                                  .observer = options.observer});
  failpoints.pass("open.locked");
  report_page_cache(files.slots.front(), options.strict);
  check_layout(files.stored, layout, options.model_digest);
  const uint32_t slots = options.durable == Durable::none ? 1 : 2;
  if (files.stored.slots != slots)
    fail(ErrorKind::config,
         "the store was created with {} slot{}, storage.durable: {} needs {}. Changing it for an existing "
         "store is not "
         "built yet: set it back to {}",
         files.stored.slots, files.stored.slots == 1 ? "" : "s",
         options.durable == Durable::none ? "none" : "step or checkpoint", slots,
         files.stored.slots == 1 ? "none" : "step or checkpoint");
  OpenedStore opened = check_store(std::move(files), layout, options, found);
  failpoints.pass("open.checked");
  rewrite_record(opened, failpoints, options.run_dir, options, found);
  failpoints.pass("open.done");
  return std::make_unique<FileStore>(std::move(opened), layout, std::move(failpoints),
                                     FileStore::Options{false, options.durable, options.progress});
}

std::unique_ptr<Store> Store::open_read_only(const fs::path& run_dir, const Layout& layout,
                                             OpenReport* report, const std::vector<fs::path>& paths,
                                             bool strict) {
  OpenReport local;
  OpenReport& found = report != nullptr ? *report : local;
  StoreFiles files =
      lock_store(run_dir, {.mode = io::LockMode::shared, .seconds = kReaderLockSeconds, .paths = paths});
  report_page_cache(files.slots.front(), strict);
  check_layout(files.stored, layout, files.stored.model_digest);
  OpenedStore opened = check_store(std::move(files), layout, {}, found);
  return std::make_unique<FileStore>(std::move(opened), layout, Failpoints({}),
                                     FileStore::Options{.read_only = true});
}

}  // namespace sluice::offload
