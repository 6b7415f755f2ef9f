#include "engine/stored_names.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/plain_file.h"
#include "engine/safetensors.h"

namespace sluice::engine {

using base::ErrorKind;

bool stores_tensor(const std::filesystem::path& folder, const std::string& name) {
  if (const auto single = folder / "model.safetensors"; std::filesystem::exists(single)) {
    const auto tensors = read_safetensors_header(PlainFile::open(single, ErrorKind::model)).tensors;
    return std::any_of(tensors.begin(), tensors.end(), [&](const TensorEntry& t) { return t.name == name; });
  }
  const auto index = folder / "model.safetensors.index.json";
  if (!std::filesystem::exists(index)) return false;
  const auto json = nlohmann::json::parse(read_text_file(index, ErrorKind::model), nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("weight_map") && json["weight_map"].contains(name);
}

}  // namespace sluice::engine
