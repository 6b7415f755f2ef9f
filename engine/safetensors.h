// The safetensors container, read as strictly as its reference implementation: an 8-byte length, a JSON
// header, then tensors that cover the rest of the file without hole or overlap.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/plain_file.h"

namespace sluice::engine {

struct TensorEntry {
  std::string name;
  std::string dtype;  // as in the file: "BF16", "F32", ...
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, relative to the data area
  uint64_t count() const;       // elements; exact once the header has been checked
};

struct SafetensorsHeader {
  uint64_t data_start = 0;                                    // offset of the data area in the file
  std::vector<TensorEntry> tensors;                           // by begin
  std::vector<std::pair<std::string, std::string>> metadata;  // in the file's order
};

inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

// Bits per element, 0 for an unknown type.
uint32_t dtype_bits(std::string_view dtype);

// Bytes of the JSON header, from the file's first 8 bytes (fewer: the whole file). Error(model) when it
// cannot be true.
uint64_t safetensors_header_bytes(std::string_view first_bytes, uint64_t file_bytes,
                                  const std::string& where);
// Parses and checks the JSON header of a file of file_bytes. Error(model) says which rule is broken.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t file_bytes,
                                           const std::string& where);
SafetensorsHeader read_safetensors_header(const PlainFile& file);

// The first 8 bytes and the header: entries in the given order with their begin and end, padded with spaces
// to 8 bytes.
std::string write_safetensors_header(const SafetensorsHeader& header);

}  // namespace sluice::engine
