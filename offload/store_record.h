// The 4 KiB record that publishes a generation. Offsets: docs/store_format.md, "Record".
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace sluice::offload {

inline constexpr uint32_t kStoreVersion = 1;
inline constexpr size_t kPageBytes = 4096;
inline constexpr uint64_t kRecordSpacing = 1 << 20;  // the two records never share a page of the drive
inline constexpr uint64_t kSuperBytes = kRecordSpacing + kPageBytes;

using Page = std::array<std::byte, kPageBytes>;
using Uuid = std::array<std::byte, 16>;

Uuid make_uuid();
std::string to_string(const Uuid& uuid);              // 32 lower-case hex digits
bool parse_uuid(const std::string& text, Uuid* out);  // false: not 32 lower-case hex digits

// What a record carries beside the bytes; fixed size, little endian on disk.
struct StepMeta {
  uint64_t step = 0;     // completed steps
  uint64_t samples = 0;  // consumed, global
  uint64_t tokens = 0;
  uint64_t seed = 0;
  uint64_t skipped = 0;  // steps skipped for non-finite gradients
  double lr = 0;
  double loss_scale = 0;    // fp16's scaler; 0: none
  uint64_t good_steps = 0;  // since the last overflow
  uint64_t hysteresis = 0;  // overflows that are still borne before the scale falls, plus one
  bool operator==(const StepMeta&) const = default;
};

struct Record {
  static constexpr uint32_t kUndoable =
      1;  // published by a step or a skip: the other record may be published again
  static constexpr uint32_t kDirty = 2;  // the one slot is being written in place (durable: none)

  uint32_t slot = 0;
  Uuid uuid{};
  uint64_t seq = 0;  // of this publication; the record lies at index seq & 1
  uint64_t gen = 0;  // seq of the publication that first used the slot
  uint64_t root = 0;
  uint64_t layout_hash = 0;
  uint32_t world = 1;
  uint32_t flags = 0;
  StepMeta meta;
  bool operator==(const Record&) const = default;
};

// Where a record of this sequence number lies in SUPER.
constexpr uint64_t record_offset(uint64_t seq) {
  return (seq & 1) * kRecordSpacing;
}

Page encode_record(const Record& record);

enum class PageState {
  valid,
  empty,    // all zero: never written
  damaged,  // checksum or magic wrong
  other_version,
};
PageState decode_record(std::span<const std::byte, kPageBytes> page, Record* out);

}  // namespace sluice::offload
