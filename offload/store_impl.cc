#include "offload/store_impl.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "offload/store_bytes.h"
#include "offload/store_verify.h"

namespace sluice::offload {

using base::ErrorKind;
using base::fail;

// Refuses to begin when an earlier one failed, and marks the store as failed unless it ends in success.
class FileStore::Change {
 public:
  explicit Change(FileStore& store) : store_(store) {
    SLUICE_CHECK(!store.options_.read_only, "the store is open for reading");
    SLUICE_CHECK(store.phase_ != Phase::closed, "the store is closed");
    if (store.broken_)
      fail(ErrorKind::disk,
           "{}: an earlier change of the store failed; nothing more is written. Start again with --resume "
           "auto",
           store.super_.path().string());
    store.broken_ = true;
  }
  void done() { store_.broken_ = false; }

 private:
  FileStore& store_;
};

FileStore::FileStore(OpenedStore opened, const Layout& layout, Ranks& ranks, Failpoints failpoints, Options options)
    : layout_(layout),
      options_(std::move(options)),
      ranks_(ranks),
      failpoints_(std::move(failpoints)),
      uuid_(opened.files.stored.uuid),
      geometry_(layout, opened.files.stored.shares),
      slots_(opened.files.stored.slots),
      store_(opened.files.store),
      super_(std::move(opened.files.super)),
      record_(opened.record),
      published_(static_cast<int>(opened.record.slot)) {
  for (DataFiles& data : opened.files.data) {
    Files& files = files_.emplace_back();
    static_cast<DataFiles&>(files) = std::move(data);
    files.next_table = files.table;
    files.hash_set.assign(files.table.size(), one_slot());
  }
}

int FileStore::target() const {
  return one_slot() ? 0 : 1 - published_.load();
}

const FileStore::Files& FileStore::files_of(const StoreGeometry::Place& place) const {
  for (const Files& files : files_)
    if (files.rank == place.rank && files.drive == place.drive) return files;
  fail(ErrorKind::bug, "an extent of rank {} was asked of rank {}", place.rank, ranks_.rank());
}

Extent FileStore::extent(int slot, uint32_t tile, Part part) const {
  SLUICE_CHECK(slot >= 0 && static_cast<uint32_t>(slot) < slots_, "no such slot");
  const StoreGeometry::Place place = geometry_.place(tile, part);
  const Files& files = files_of(place);
  return {place.base ? &files.base : &files.slots[static_cast<size_t>(slot)], place.offset, place.bytes, place.drive};
}

uint64_t FileStore::hash(int slot, uint32_t tile, Part part) const {
  const StoreGeometry::Place place = geometry_.place(tile, part);
  const Files& files = files_of(place);
  if (place.base) return files.base_table[place.entry];
  if (slot == published_.load() && !one_slot()) return files.table[place.entry];
  SLUICE_CHECK(slot == target(), "no such slot");
  SLUICE_CHECK(files.hash_set[place.entry] != 0, "hash of an extent that was not written yet");
  return files.next_table[place.entry];
}

void FileStore::set_hash(uint32_t tile, Part part, uint64_t hash) {
  const StoreGeometry::Place place = geometry_.place(tile, part);
  SLUICE_CHECK(!place.base, "frozen extents are never written");
  SLUICE_CHECK(phase_ == Phase::writing, "set_hash before begin_writes of its generation");
  Files& files = const_cast<Files&>(files_of(place));
  files.next_table[place.entry] = hash;
  files.hash_set[place.entry] = 1;
}

void FileStore::begin_writes() {
  Change change(*this);
  SLUICE_CHECK(phase_ != Phase::prepared, "begin_writes between prepare and publish");
  if (phase_ == Phase::idle) {
    for (const Files& files : files_) {
      const io::File& file = files.slots[static_cast<size_t>(target())];
      if (const uint64_t links = file.link_count(); links != 1)
        fail(ErrorKind::disk,
             "{} has {} names; the next step would change what the others hold. Remove the other names (hard "
             "links), "
             "or replace them by copies",
             file.path().string(), links);
    }
    if (one_slot()) mark_dirty();
    phase_ = Phase::writing;
  }
  change.done();
}

// Durable before the first write in place. Rank 0 marks the record. The others do not wait for it: each marks its own headers, and one
// mark is enough for the store to be refused.
void FileStore::mark_dirty() {
  if (ranks_.rank() == 0) {
    Record dirty = record_;
    ++dirty.seq;
    dirty.flags = Record::kDirty;
    write_record(dirty, "");
  } else {
    for (const Files& files : files_) {
      SlotHeader header = new_header(geometry_.slot(files.rank, files.drive), files.table, record_.meta);
      header.uuid = uuid_;
      header.rank = files.rank;
      header.drive = files.drive;
      header.gen = record_.gen;
      header.flags = kSlotDirty;
      files.slots[0].write_at(0, encode_header(header));
      files.slots[0].sync();
    }
  }
  failpoints_.pass("dirty.marked");
}

std::vector<uint64_t> FileStore::write_generation(const StepMeta& meta, uint64_t gen) {
  std::vector<uint64_t> hashes;
  const auto slot = static_cast<size_t>(target());
  for (const Files& files : files_)
    for (size_t entry = 0; entry < files.hash_set.size(); ++entry)
      SLUICE_CHECK(files.hash_set[entry] != 0, fmt::format("hash of extent {} on drive {} was not set", entry, files.drive));
  failpoints_.pass("commit.begin");
  for (const Files& files : files_) {
    SlotHeader header = new_header(geometry_.slot(files.rank, files.drive), files.next_table, meta);
    header.uuid = uuid_;
    header.rank = files.rank;
    header.drive = files.drive;
    header.slot = static_cast<uint32_t>(slot);
    header.gen = gen;
    write_table_and_header(files.slots[slot], files.next_table, header);
    hashes.push_back(header.table_hash);
  }
  failpoints_.pass("commit.table");
  for (const Files& files : files_) files.slots[slot].sync();
  failpoints_.pass("commit.prepared");
  return hashes;
}

void FileStore::write_record(const Record& record, std::string_view written) {
  super_.write_at(record_offset(record.seq), encode_record(record));
  if (!written.empty()) failpoints_.pass(written);
  super_.sync();
  record_ = record;
}

// C4 and C5: rank 0 writes it, the others wait.
void FileStore::publish_record(const Record& record, std::string_view written) {
  ranks_.on_first("publish", [&] { write_record(record, written); }, kUsualWait);
  record_ = record;
}

// C3: all ranks are at the same change of the same state. Returns all table hashes, by (rank, drive).
std::vector<uint64_t> FileStore::agree_on(const char* what, const StepMeta& meta, const std::vector<uint64_t>& table_hashes) {
  Page page{};
  bytes::put_meta(page, 0, meta);
  const std::vector<uint64_t> head = {record_.seq, record_.gen, base::xxh3(page)};
  const std::vector<Bytes> all = ranks_.exchange(
      what,
      [&] {
        std::vector<uint64_t> words = head;
        words.insert(words.end(), table_hashes.begin(), table_hashes.end());
        return bytes_of(words);
      },
      kUsualWait);
  std::vector<uint64_t> hashes;
  for (size_t r = 0; r < all.size(); ++r) {
    const std::vector<uint64_t> words = words_of(all[r]);
    SLUICE_CHECK(words.size() >= head.size() && std::equal(head.begin(), head.end(), words.begin()),
                 fmt::format("rank {} commits another step than rank {}", r, ranks_.rank()));
    hashes.insert(hashes.end(), words.begin() + static_cast<ptrdiff_t>(head.size()), words.end());
  }
  return hashes;
}

Record FileStore::next_record(const StepMeta& meta, uint64_t seq) const {
  Record next = record_;
  next.seq = seq;
  next.flags = one_slot() ? 0 : Record::kUndoable;
  next.meta = meta;
  return next;
}

void FileStore::forget_hashes() {
  for (Files& files : files_) std::fill(files.hash_set.begin(), files.hash_set.end(), 0);
}

void FileStore::prepare(const StepMeta& meta) {
  Change change(*this);
  try {
    SLUICE_CHECK(!one_slot(), "with one slot only close() publishes");
    SLUICE_CHECK(phase_ == Phase::writing, "prepare without begin_writes");
    prepared_ = write_generation(meta, record_.seq + 1);
  } catch (...) {
    // The others are on their way to publish(); they get this as the reason why nobody does.
    const std::exception_ptr error = std::current_exception();
    ranks_.exchange("commit", [&]() -> Bytes { std::rethrow_exception(error); }, kUsualWait);
  }
  prepared_meta_ = meta;
  phase_ = Phase::prepared;
  change.done();
}

void FileStore::publish() {
  Change change(*this);
  SLUICE_CHECK(phase_ == Phase::prepared, "publish without prepare");
  Record next = next_record(prepared_meta_, record_.seq + 1);
  next.root = root_hash(agree_on("commit", prepared_meta_, prepared_));
  next.slot = static_cast<uint32_t>(target());
  next.gen = next.seq;
  publish_record(next, "commit.record");
  for (Files& files : files_) files.table = files.next_table;
  forget_hashes();
  published_.store(static_cast<int>(record_.slot));
  phase_ = Phase::idle;
  failpoints_.pass("commit.done");
  change.done();
}

void FileStore::skip(const StepMeta& meta) {
  SLUICE_CHECK(phase_ != Phase::prepared, "skip between prepare and publish");
  if (options_.durable == Durable::step) return commit_unchanged(meta);
  Change(*this).done();
}

void FileStore::commit_unchanged(const StepMeta& meta) {
  Change change(*this);
  SLUICE_CHECK(phase_ != Phase::prepared && !one_slot(), "the published slot is not the newest state");
  agree_on("skip", meta, {});
  publish_record(next_record(meta, record_.seq + 1), "skip.record");
  forget_hashes();
  failpoints_.pass("skip.done");
  change.done();
}

void FileStore::close(const StepMeta& meta) {
  Change change(*this);
  if (one_slot()) close_one_slot(meta);
  phase_ = Phase::closed;
  change.done();
}

void FileStore::close_one_slot(const StepMeta& meta) {
  // Rank 0's mark has its own sequence number, which the others do not know of.
  const std::vector<Bytes> all = ranks_.exchange(
      "closing", [&] { return bytes_of(std::vector<uint64_t>{record_.seq, phase_ == Phase::writing}); }, kUsualWait);
  const uint64_t seq = words_of(all[0])[0] + 1;
  record_.seq = seq - 1;
  if (std::any_of(all.begin(), all.end(), [](const Bytes& bytes) { return words_of(bytes)[1] != 0; })) {
    std::vector<uint64_t> hashes;
    ranks_.agree("writing tables", [&] { hashes = write_generation(meta, seq); });
    Record next = next_record(meta, seq);
    next.root = root_hash(agree_on("commit", meta, hashes));
    next.gen = seq;
    publish_record(next, "commit.record");
    for (Files& files : files_) files.table = files.next_table;
    failpoints_.pass("commit.done");
  } else if (meta != record_.meta) {  // only skips
    agree_on("skip", meta, {});
    publish_record(next_record(meta, seq), "commit.record");
  }
}

void FileStore::verify() {
  SLUICE_CHECK(!one_slot() || phase_ != Phase::writing, "the only slot is being written");
  std::vector<const DataFiles*> all;
  for (const Files& files : files_) all.push_back(&files);
  verify_extents({.layout = layout_, .geometry = geometry_, .data = all, .slot = record_.slot, .progress = options_.progress});
}

std::vector<const io::File*> FileStore::files() const {
  std::vector<const io::File*> all;
  for (const Files& files : files_) {
    for (const io::File& slot : files.slots) all.push_back(&slot);
    if (files.base.valid()) all.push_back(&files.base);
  }
  return all;
}

}  // namespace sluice::offload
