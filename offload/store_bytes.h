// Little-endian fields of a checksummed 4 KiB page. Used by the record and the slot header only.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/error.h"
#include "base/hash.h"
#include "offload/store_record.h"

namespace sluice::offload::bytes {

static_assert(std::endian::native == std::endian::little);
static_assert(sizeof(double) == 8);

inline constexpr size_t kHashAt = kPageBytes - 8;  // XXH3-64 of all before it

template <class T>
void put(std::span<std::byte, kPageBytes> page, size_t offset, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  SLUICE_CHECK(offset + sizeof(T) <= kPageBytes);
  std::memcpy(page.data() + offset, &value, sizeof(T));
}

template <class T>
T get(std::span<const std::byte, kPageBytes> page, size_t offset) {
  static_assert(std::is_trivially_copyable_v<T>);
  SLUICE_CHECK(offset + sizeof(T) <= kPageBytes);
  T value;
  std::memcpy(&value, page.data() + offset, sizeof(T));
  return value;
}

// Text is cut to the field and padded with zeros.
inline void put_text(std::span<std::byte, kPageBytes> page, size_t offset, size_t field,
                     std::string_view text) {
  SLUICE_CHECK(offset + field <= kHashAt);
  std::memset(page.data() + offset, 0, field);
  std::memcpy(page.data() + offset, text.data(), std::min(field, text.size()));
}

inline std::string get_text(std::span<const std::byte, kPageBytes> page, size_t offset, size_t field) {
  SLUICE_CHECK(offset + field <= kHashAt);
  const char* begin = reinterpret_cast<const char*>(page.data()) + offset;
  return {begin, strnlen(begin, field)};
}

inline void seal(std::span<std::byte, kPageBytes> page) {
  put(page, kHashAt, base::xxh3(page.data(), kHashAt));
}

// Magic and version lie at 0 and 8 in every page.
inline PageState check(std::span<const std::byte, kPageBytes> page, uint64_t magic) {
  if (std::all_of(page.begin(), page.end(), [](std::byte b) { return b == std::byte{0}; }))
    return PageState::empty;
  if (get<uint64_t>(page, kHashAt) != base::xxh3(page.data(), kHashAt)) return PageState::damaged;
  if (get<uint64_t>(page, 0) != magic) return PageState::damaged;
  return get<uint32_t>(page, 8) == kStoreVersion ? PageState::valid : PageState::other_version;
}

// The step's meta takes kMetaBytes in both pages; what it does not use yet is zero.
inline constexpr size_t kMetaBytes = 256;
void put_meta(std::span<std::byte, kPageBytes> page, size_t offset, const StepMeta& meta);
StepMeta get_meta(std::span<const std::byte, kPageBytes> page, size_t offset);

// Eight characters as they lie on disk.
constexpr uint64_t magic(const char (&text)[9]) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(text[i]);
  return value;
}

}  // namespace sluice::offload::bytes
