// A Hugging Face folder with random weights: to train from nothing, and to measure models that nobody has to download.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>

#include "engine/hf_config.h"

namespace sluice::engine {

struct RandomModelOptions {
  HfConfig config;                  // raw becomes config.json
  std::filesystem::path tokenizer;  // folder whose tokenizer files come along; empty: none
  std::filesystem::path out;        // must not exist, or be an empty folder
  uint64_t seed = 0;
  uint64_t shard = 4'000'000'000;   // most bytes of weights in a file, but for larger tensors
  int threads = 1;
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes; may be empty
};

// bf16, as transformers begins: matrices normal with standard deviation initializer_range, norms 1, biases 0. A value depends on seed, tensor
// name and index alone. Written beside `out` as OUT.tmp and renamed; on an error nothing is left. Error(config) when `out` is in use,
// Error(disk) for want of room, before anything is written.
void write_random_model(const RandomModelOptions& options);

}  // namespace sluice::engine
