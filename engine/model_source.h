// From a Hugging Face folder to a layout, the model's math and the initial bytes of every tile.
#pragma once
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/hf_reader.h"
#include "offload/layout.h"

namespace sluice::engine {

class Model;  // engine/model.h, which needs LibTorch

struct ModelSource {
  std::filesystem::path path;               // Hugging Face folder
  std::vector<std::string> trainable{"*"};  // globs on tensor names; a tensor that matches none is frozen
  std::vector<std::string> no_decay;        // globs; parameter group 1, without weight decay
  int64_t loss_chunk = 512;                 // tokens
  offload::Schema schema = offload::Schema::bf16;
  uint64_t tile = 2 << 20;  // elements
  uint32_t world = 1;       // ranks that share the model
};

// What is trained, from the config alone. Error(config) when a glob matches no tensor.
offload::ModelDesc describe(const HfConfig& config, const ModelSource& source);

// Error(config) for a sequence that is longer than a model's learned positions.
void check_sequence(const HfConfig& config, uint64_t sequence);

struct ModelSetup {
  explicit ModelSetup(const ModelSource& source);  // reads and checks headers; Error(model)
  ~ModelSetup();

  HfReader reader;
  offload::Layout layout;
  std::unique_ptr<Model> model;
};

// The initial weights extent of a tile, and where the schema has them the state's lo or p (offload::master_bytes); both zero-filled
// by the caller, `master` may be empty.
void fill_tile(const HfReader& reader, const offload::Layout& layout, const offload::Tile& tile, std::span<std::byte> weights,
               std::span<std::byte> master);

}  // namespace sluice::engine
