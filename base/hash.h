// XXH3-64 (Debian libxxhash). Every checksum of the project, on disk and in memory, is this one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace sluice::base {

uint64_t xxh3(const void* data, size_t bytes);
inline uint64_t xxh3(std::span<const std::byte> data) { return xxh3(data.data(), data.size()); }

// The same hash over pieces. Not thread-safe.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(const Xxh3&) = delete;
  Xxh3& operator=(const Xxh3&) = delete;
  void update(const void* data, size_t bytes);
  uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hash_hex(uint64_t hash);  // 16 lower-case digits

}  // namespace sluice::base
