// What is in the weight files of a model folder, by name, without opening them for reading weights.
#pragma once
#include <filesystem>
#include <string>

namespace sluice::engine {

// Whether the folder's safetensors file, or the index of its shards, lists the tensor. false without weights; Error(model) for a
// file that cannot be read.
bool stores_tensor(const std::filesystem::path& folder, const std::string& name);

}  // namespace sluice::engine
