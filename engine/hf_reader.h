// The weights of a Hugging Face folder: one safetensors file or shards with an index; links (hub cache) are
// followed.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/hf_config.h"
#include "engine/plain_file.h"
#include "engine/safetensors.h"
#include "offload/layout.h"

namespace sluice::engine {

struct ExpectedTensor {
  std::string name;
  std::vector<int64_t> shape;
};
std::vector<ExpectedTensor> expected_tensors(const offload::ModelDesc& model);

struct WeightFile {
  std::string name;  // in the folder
  PlainFile file;
  SafetensorsHeader header;
};

// Opens and checks everything but the tensors' values. The members are const and may be called from several
// threads at once. Nothing is mapped, and no read needs more than 64 KiB beside the caller's buffer. Errors
// are Error(model).
class HfReader {
 public:
  explicit HfReader(const std::filesystem::path& folder);

  const HfConfig& config() const { return config_; }
  const std::filesystem::path& folder() const { return folder_; }
  const std::vector<WeightFile>& files() const { return files_; }
  bool has(const std::string& name) const { return places_.contains(name); }
  const TensorEntry& tensor(const std::string& name) const;  // Error(model) when absent

  // Names and shapes must be the expected ones. Buffers of old files (rotary inv_freq, GPT-2's masks) are ignored, and so is
  // the lm_head.weight of a tied model, with a warning when it differs from the embedding. Everything else
  // unknown or missing is listed.
  void check(const std::vector<ExpectedTensor>& expected) const;

  // Elements [first, first + count) of a tensor in row-major order; BF16, F16 and F32 sources.
  void read(const std::string& name, uint64_t first, uint64_t count, float* out) const;
  // The same as bf16 compute weights: the bits of a BF16 source; base::split(value).hi of others.
  void read_bf16(const std::string& name, uint64_t first, uint64_t count, uint16_t* out) const;

  // Bytes [offset, offset + bytes) of a tensor as they are in the file.
  void read_raw(const std::string& name, uint64_t offset, void* out, size_t bytes) const {
    read_bytes(place(name), offset, out, bytes);
  }

  // Identifies the model, 16 hex digits: what config.json says of the numbers, and of every tensor name,
  // type, shape and first 64 KiB. The same however the tensors are spread over files.
  std::string digest() const;

 private:
  struct Place {
    uint32_t file, tensor;
  };
  void open_sharded(const std::filesystem::path& index);
  void add_file(const std::string& name);
  void check_tied_head(const std::string& matrix) const;
  void read_bytes(const Place& place, uint64_t offset, void* out, size_t bytes) const;
  // Calls use(bytes of a piece, elements in it, elements before it) over a range of a tensor.
  template <class Use>
  void each_piece(const std::string& name, uint64_t first, uint64_t count, const Use& use) const;
  Place place(const std::string& name) const;

  std::filesystem::path folder_;
  HfConfig config_;
  std::vector<WeightFile> files_;
  std::map<std::string, Place> places_;  // sorted, so that the digest does not depend on files
};

// A buffer that old files carry and that is no parameter.
bool is_ignored_buffer(const std::string& name, Family family);

}  // namespace sluice::engine
