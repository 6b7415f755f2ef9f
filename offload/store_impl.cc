#include "offload/store_impl.h"

#include <algorithm>

#include "base/error.h"
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

FileStore::FileStore(OpenedStore opened, const Layout& layout, Failpoints failpoints, Options options)
    : layout_(layout),
      geometry_(layout),
      options_(std::move(options)),
      failpoints_(std::move(failpoints)),
      uuid_(opened.files.stored.uuid),
      super_(std::move(opened.files.super)),
      base_(std::move(opened.files.base)),
      slots_(std::move(opened.files.slots)),
      record_(opened.record),
      published_(static_cast<int>(opened.record.slot)),
      table_(std::move(opened.table)),
      base_table_(std::move(opened.base_table)),
      next_table_(table_),
      hash_set_(table_.size(), one_slot()) {}

int FileStore::target() const {
  return one_slot() ? 0 : 1 - published_.load();
}

Extent FileStore::extent(int slot, uint32_t tile, Part part) const {
  SLUICE_CHECK(slot >= 0 && static_cast<size_t>(slot) < slots_.size(), "no such slot");
  const StoreGeometry::Place place = geometry_.place(tile, part);
  return {place.base ? &base_ : &slots_[static_cast<size_t>(slot)], place.offset, place.bytes};
}

uint64_t FileStore::hash(int slot, uint32_t tile, Part part) const {
  const StoreGeometry::Place place = geometry_.place(tile, part);
  if (place.base) return base_table_[place.entry];
  if (slot == published_.load() && !one_slot()) return table_[place.entry];
  SLUICE_CHECK(slot == target(), "no such slot");
  SLUICE_CHECK(hash_set_[place.entry] != 0, "hash of an extent that was not written yet");
  return next_table_[place.entry];
}

void FileStore::set_hash(uint32_t tile, Part part, uint64_t hash) {
  const StoreGeometry::Place place = geometry_.place(tile, part);
  SLUICE_CHECK(!place.base, "frozen extents are never written");
  SLUICE_CHECK(phase_ == Phase::writing, "set_hash before begin_writes of its generation");
  next_table_[place.entry] = hash;
  hash_set_[place.entry] = 1;
}

void FileStore::begin_writes() {
  Change change(*this);
  SLUICE_CHECK(phase_ != Phase::prepared, "begin_writes between prepare and publish");
  if (phase_ == Phase::idle) {
    const io::File& file = slots_[static_cast<size_t>(target())];
    if (const uint64_t links = file.link_count(); links != 1)
      fail(ErrorKind::disk,
           "{} has {} names; the next step would change what the others hold. Remove the other names (hard "
           "links), "
           "or replace them by copies",
           file.path().string(), links);
    if (one_slot()) {
      Record dirty = record_;
      ++dirty.seq;
      dirty.flags = Record::kDirty;
      write_record(dirty, "");
      failpoints_.pass("dirty.marked");
    }
    phase_ = Phase::writing;
  }
  change.done();
}

void FileStore::write_generation(const StepMeta& meta) {
  for (size_t entry = 0; entry < hash_set_.size(); ++entry)
    SLUICE_CHECK(hash_set_[entry] != 0, fmt::format("hash of extent {} was not set", entry));
  const io::File& file = slots_[static_cast<size_t>(target())];
  SlotHeader header;
  header.uuid = uuid_;
  header.slot = static_cast<uint32_t>(target());
  header.gen = record_.seq + 1;
  header.extents = geometry_.slot().extents;
  header.data_offset = geometry_.slot().data_offset;
  header.file_bytes = geometry_.slot().file_bytes;
  header.table_hash = table_hash(next_table_);
  header.meta = meta;
  header.attempt = process_text();
  header.boot_id = boot_id();
  failpoints_.pass("commit.begin");
  write_table_and_header(file, next_table_, header);
  failpoints_.pass("commit.table");
  file.sync();
  failpoints_.pass("commit.prepared");

  next_ = record_;
  next_.slot = header.slot;
  next_.seq = next_.gen = header.gen;
  next_.root = root_hash({&header.table_hash, 1});
  next_.flags = one_slot() ? 0 : Record::kUndoable;
  next_.meta = meta;
}

void FileStore::write_record(const Record& record, std::string_view written) {
  super_.write_at(record_offset(record.seq), encode_record(record));
  if (!written.empty()) failpoints_.pass(written);
  super_.sync();
  record_ = record;
}

void FileStore::prepare(const StepMeta& meta) {
  Change change(*this);
  SLUICE_CHECK(!one_slot(), "with one slot only close() publishes");
  SLUICE_CHECK(phase_ == Phase::writing, "prepare without begin_writes");
  write_generation(meta);
  phase_ = Phase::prepared;
  change.done();
}

void FileStore::publish() {
  Change change(*this);
  SLUICE_CHECK(phase_ == Phase::prepared, "publish without prepare");
  write_record(next_, "commit.record");
  table_ = next_table_;
  std::fill(hash_set_.begin(), hash_set_.end(), 0);
  published_.store(static_cast<int>(record_.slot));
  phase_ = Phase::idle;
  failpoints_.pass("commit.done");
  change.done();
}

void FileStore::skip(const StepMeta& meta) {
  Change change(*this);
  SLUICE_CHECK(phase_ != Phase::prepared, "skip between prepare and publish");
  if (options_.durable == Durable::step) {
    Record next = record_;
    ++next.seq;
    next.flags = Record::kUndoable;
    next.meta = meta;
    write_record(next, "skip.record");
    std::fill(hash_set_.begin(), hash_set_.end(), 0);
    failpoints_.pass("skip.done");
  }
  change.done();
}

void FileStore::close(const StepMeta& meta) {
  Change change(*this);
  if (one_slot() && phase_ == Phase::writing) {
    write_generation(meta);
    write_record(next_, "commit.record");
    table_ = next_table_;
    failpoints_.pass("commit.done");
  } else if (one_slot() && meta != record_.meta) {  // only skips
    Record next = record_;
    ++next.seq;
    next.meta = meta;
    write_record(next, "commit.record");
  }
  phase_ = Phase::closed;
  change.done();
}

void FileStore::verify() {
  SLUICE_CHECK(!one_slot() || phase_ != Phase::writing, "the only slot is being written");
  verify_extents({.layout = layout_,
                  .geometry = geometry_,
                  .slot = &slots_[record_.slot],
                  .table = table_,
                  .base = base_.valid() ? &base_ : nullptr,
                  .base_table = base_table_,
                  .progress = options_.progress});
}

std::vector<const io::File*> FileStore::files() const {
  std::vector<const io::File*> all;
  for (const io::File& slot : slots_) all.push_back(&slot);
  if (base_.valid()) all.push_back(&base_);
  return all;
}

}  // namespace sluice::offload
