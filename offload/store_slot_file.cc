#include "offload/store_slot_file.h"

#include <unistd.h>

#include <fstream>

#include "base/units.h"
#include "offload/store_bytes.h"

namespace sluice::offload {
namespace {

constexpr uint64_t kHeaderMagic = bytes::magic("SLUICSLT");
constexpr size_t kMetaAt = 128, kAttemptAt = kMetaAt + bytes::kMetaBytes, kAttemptBytes = 128;
constexpr size_t kBootAt = kAttemptAt + kAttemptBytes, kBootBytes = 64;
static_assert(kBootAt + kBootBytes <= bytes::kHashAt);

}  // namespace

Page encode_header(const SlotHeader& header) {
  Page page{};
  bytes::put(page, 0, kHeaderMagic);
  bytes::put(page, 8, kStoreVersion);
  bytes::put(page, 12, header.rank);
  bytes::put(page, 16, header.uuid);
  bytes::put(page, 32, header.drive);
  bytes::put(page, 36, header.slot);
  bytes::put(page, 40, header.gen);
  bytes::put(page, 48, header.meta.step);
  bytes::put(page, 56, header.extents);
  bytes::put(page, 64, header.data_offset);
  bytes::put(page, 72, header.file_bytes);
  bytes::put(page, 80, header.table_hash);
  bytes::put(page, 88, header.flags);
  bytes::put_meta(page, kMetaAt, header.meta);
  bytes::put_text(page, kAttemptAt, kAttemptBytes, header.attempt);
  bytes::put_text(page, kBootAt, kBootBytes, header.boot_id);
  bytes::seal(page);
  return page;
}

PageState decode_header(std::span<const std::byte, kPageBytes> page, SlotHeader* out) {
  const PageState state = bytes::check(page, kHeaderMagic);
  if (state != PageState::valid) return state;
  out->rank = bytes::get<uint32_t>(page, 12);
  out->uuid = bytes::get<Uuid>(page, 16);
  out->drive = bytes::get<uint32_t>(page, 32);
  out->slot = bytes::get<uint32_t>(page, 36);
  out->gen = bytes::get<uint64_t>(page, 40);
  out->extents = bytes::get<uint64_t>(page, 56);
  out->data_offset = bytes::get<uint64_t>(page, 64);
  out->file_bytes = bytes::get<uint64_t>(page, 72);
  out->table_hash = bytes::get<uint64_t>(page, 80);
  out->flags = bytes::get<uint32_t>(page, 88);
  out->meta = bytes::get_meta(page, kMetaAt);
  out->attempt = bytes::get_text(page, kAttemptAt, kAttemptBytes);
  out->boot_id = bytes::get_text(page, kBootAt, kBootBytes);
  return bytes::get<uint64_t>(page, 48) == out->meta.step ? PageState::valid : PageState::damaged;
}

SlotHeader new_header(const StoreGeometry::FileShape& shape, std::span<const uint64_t> table, const StepMeta& meta) {
  SlotHeader header;
  header.extents = shape.extents;
  header.data_offset = shape.data_offset;
  header.file_bytes = shape.file_bytes;
  header.table_hash = table_hash(table);
  header.meta = meta;
  header.attempt = process_text();
  header.boot_id = boot_id();
  return header;
}

uint64_t table_hash(std::span<const uint64_t> table) {
  return base::xxh3(table.data(), table.size_bytes());
}
uint64_t root_hash(std::span<const uint64_t> table_hashes) {
  return base::xxh3(table_hashes.data(), table_hashes.size_bytes());
}

void write_table_and_header(const io::File& file, std::span<const uint64_t> table, const SlotHeader& header) {
  std::vector<uint64_t> padded(table.begin(), table.end());
  padded.resize(base::round_up(table.size_bytes(), kPageBytes) / sizeof(uint64_t));
  if (!padded.empty()) file.write_at(kTableAt, std::as_bytes(std::span(padded)));
  file.write_at(0, encode_header(header));
}

SlotHeader read_header_and_table(const io::File& file, const StoreGeometry::FileShape& shape,
                                 const SlotHeader& expected, std::vector<uint64_t>* table) {
  using base::ErrorKind;
  const std::string path = file.path().string();
  const auto bad = [&](const std::string& what) {
    base::fail(ErrorKind::disk,
               "{}: {}; this generation of the store cannot be read (restore the file from a copy)", path,
               what);
  };
  if (file.size() != shape.file_bytes)
    bad(fmt::format("the file has {} bytes, the store needs {}", file.size(), shape.file_bytes));
  Page page;
  file.read_at(0, page);
  SlotHeader header;
  switch (decode_header(page, &header)) {
    case PageState::valid:
      break;
    case PageState::empty:
      bad("header was never written");
      break;
    case PageState::damaged:
      bad("header is damaged (checksum differs)");
      break;
    case PageState::other_version:
      bad("header has a format version this program does not know");
      break;
  }
  if (header.uuid != expected.uuid)
    bad(fmt::format("belongs to store {}, not to {}", to_string(header.uuid), to_string(expected.uuid)));
  if (header.rank != expected.rank || header.drive != expected.drive || header.slot != expected.slot)
    bad("is the file of another rank, drive or slot");
  if (header.extents != shape.extents || header.data_offset != shape.data_offset ||
      header.file_bytes != shape.file_bytes)
    bad("header has other sizes than the layout");
  table->resize(base::round_up(shape.extents * sizeof(uint64_t), kPageBytes) / sizeof(uint64_t));
  if (!table->empty()) file.read_at(kTableAt, std::as_writable_bytes(std::span(*table)));
  table->resize(shape.extents);
  if (table_hash(*table) != header.table_hash) bad("table of extent hashes is damaged");
  return header;
}

std::string boot_id() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(in, text);
  return text;
}

std::string process_text() {
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) != 0) host[0] = '?';
  return fmt::format("pid {} on {}", getpid(), host);
}

}  // namespace sluice::offload
