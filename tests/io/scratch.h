// A folder that is removed again, and content that can be checked.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>

#include "base/error.h"
#include "tests/paths.h"

namespace sluice::io {

// On the file system of the build folder, or on tmpfs: where O_DIRECT is refused.
class Scratch {
 public:
  enum class On { disk, tmpfs };
  explicit Scratch(On on = On::disk) {
    std::string name = (on == On::disk ? binary_dir() : std::filesystem::path("/dev/shm")) / "sluice-test-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// Eight bytes per position, different for each (seed, position).
inline uint64_t pattern_at(uint64_t seed, uint64_t position) {
  return (seed * 0x9e3779b97f4a7c15u) ^ (position * 0xd1342543de82ef95u);
}

inline void fill_pattern(std::span<std::byte> data, uint64_t seed, uint64_t offset) {
  for (size_t i = 0; i + 8 <= data.size(); i += 8) {
    const uint64_t value = pattern_at(seed, offset + i);
    std::memcpy(data.data() + i, &value, 8);
  }
}

inline ::testing::AssertionResult has_pattern(std::span<const std::byte> data, uint64_t seed,
                                              uint64_t offset) {
  for (size_t i = 0; i + 8 <= data.size(); i += 8) {
    uint64_t value = 0;
    std::memcpy(&value, data.data() + i, 8);
    if (value != pattern_at(seed, offset + i))
      return ::testing::AssertionFailure() << "differs at " << offset + i;
  }
  return ::testing::AssertionSuccess();
}

// The message of the base::Error of this kind that `action` throws.
template <class Action>
std::string error_of(base::ErrorKind kind, const Action& action) {
  try {
    action();
  } catch (const base::Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace sluice::io
