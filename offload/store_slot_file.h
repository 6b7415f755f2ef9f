// A slot file: 4 KiB header, table of extent hashes, data. The base file of frozen tensors has the same form.
// Offsets: docs/store_format.md, "Slot file".
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/file.h"
#include "offload/store_geometry.h"
#include "offload/store_record.h"

namespace sluice::offload {

inline constexpr uint32_t kBaseSlot = 0xffffffff;  // "slot" of the base file
inline constexpr uint32_t kSlotDirty = 1;           // flag of the header: the one slot is being changed in place (durable: none)

struct SlotHeader {
  Uuid uuid{};
  uint32_t rank = 0, drive = 0, slot = 0;
  uint64_t gen = 0;
  uint64_t extents = 0;  // entries of the table
  uint64_t data_offset = 0, file_bytes = 0;
  uint64_t table_hash = 0;  // XXH3-64 of the entries, without their padding
  uint32_t flags = 0;
  StepMeta meta;
  std::string attempt;  // up to 128 bytes of text for the reader: which process wrote it
  std::string boot_id;  // of the machine that wrote it, up to 64 bytes
  bool operator==(const SlotHeader&) const = default;
};
Page encode_header(const SlotHeader& header);
PageState decode_header(std::span<const std::byte, kPageBytes> page, SlotHeader* out);

// Of a file that this process writes now: its attempt and boot id. uuid, rank, drive, slot, gen and flags are the caller's.
SlotHeader new_header(const StoreGeometry::FileShape& shape, std::span<const uint64_t> table, const StepMeta& meta);

uint64_t table_hash(std::span<const uint64_t> table);
// Over the table hashes of all slot files of a slot, in (rank, drive) order.
uint64_t root_hash(std::span<const uint64_t> table_hashes);

// Table first, header last; not synced.
void write_table_and_header(const io::File& file, std::span<const uint64_t> table, const SlotHeader& header);
// Error(disk) unless header, table hash and the file's size agree with the shape; uuid, rank, drive and slot
// with `expected`.
SlotHeader read_header_and_table(const io::File& file, const StoreGeometry::FileShape& shape,
                                 const SlotHeader& expected, std::vector<uint64_t>* table);

std::string boot_id();       // empty: unknown
std::string process_text();  // "pid 123 on host"

}  // namespace sluice::offload
