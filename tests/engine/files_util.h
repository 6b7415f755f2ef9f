// Small files for the tests of folders and token files.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "base/error.h"
#include "tests/paths.h"

namespace sluice::engine {

// A directory of the test's own, removed at the end.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "sluice-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.is_open()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

inline std::string u64_bytes(uint64_t value) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &value, 8);
  return bytes;
}

// A whole safetensors file from its JSON header and data.
inline std::string safetensors_bytes(const std::string& json, const std::string& data) {
  return u64_bytes(json.size()) + json + data;
}

// The call must throw an Error of this kind whose message has the text.
inline void expect_error(base::ErrorKind kind, const std::string& text, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error; wanted \"" << text << "\"";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    EXPECT_THAT(std::string(e.what()), testing::HasSubstr(text));
  }
}

}  // namespace sluice::engine
