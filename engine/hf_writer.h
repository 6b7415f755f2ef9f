// Writes trained weights as a Hugging Face folder like the one they came from: same tensors, names, shapes,
// order and files.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "engine/hf_reader.h"

namespace sluice::engine {

struct ExportOptions {
  std::filesystem::path out;  // must not exist, or be an empty directory
  std::string dtype;          // "BF16", "F16", "F32"; empty: each tensor as in the source
  uint64_t piece = 1 << 20;   // most elements asked for at a time
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes of weights; may be empty
};

// Elements [first, first + out.size()) of a parameter, in fp32. Asked for in the source's order: file by
// file, tensor by tensor.
using ProduceWeights = std::function<void(const std::string& name, uint64_t first, std::span<float> out)>;

// Everything is written beside `out` as OUT.tmp, flushed, and renamed; on an error OUT.tmp is removed and
// nothing else changed. Every other file of the source comes along byte for byte (links as what they point
// to), but for weights in other formats; config.json gains only missing twin keys (config_text.h). Tensors
// that are no parameters (see HfReader::check) are copied. bf16 values are base::split(value).hi, the weights
// that the run computes with. Errors: Error(config) when `out` is in use or inside the source, Error(disk)
// for want of room (before and while writing).
class HfWriter {
 public:
  // The source must have passed check(expected) and outlive this.
  HfWriter(const HfReader& source, const std::vector<ExpectedTensor>& expected, ExportOptions options);
  void write(const ProduceWeights& produce);

 private:
  struct OutFile {
    std::string name;
    SafetensorsHeader header;
  };
  uint64_t weight_bytes() const;
  void check_room(uint64_t other_bytes) const;
  void write_folder(const ProduceWeights& produce);
  void write_weights(const OutFile& file, const ProduceWeights& produce);
  void write_tensor(PlainFile& out, const TensorEntry& tensor, const ProduceWeights& produce);
  void copy_tensor(PlainFile& out, const TensorEntry& tensor);
  void write_index();
  void report(uint64_t bytes);

  const HfReader& source_;
  const ExportOptions options_;
  std::filesystem::path temporary_;
  std::vector<OutFile> files_;
  std::vector<std::string> parameters_;  // sorted
  bool new_types_ = false;               // some tensor changes its type
  uint64_t done_ = 0;
};

}  // namespace sluice::engine
