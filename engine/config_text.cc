#include "engine/config_text.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace sluice::engine {
namespace {

using Json = nlohmann::ordered_json;

// The text with the keys appended to its outermost object, indented like that object's first key.
std::string append_keys(const std::string& text, const Json& additions) {
  const size_t open = text.find('{'), close = text.rfind('}');
  const size_t first_key = text.find_first_not_of(" \t\r\n", open + 1);
  const std::string indent = text.substr(open + 1, first_key - open - 1);
  const bool lines = indent.find('\n') != std::string::npos;
  std::string inserted;
  for (const auto& [key, value] : additions.items()) {
    std::string shown = lines ? value.dump(2) : value.dump();
    if (lines) {
      const std::string margin = indent.substr(indent.rfind('\n'));
      for (size_t at = 0; (at = shown.find('\n', at)) != std::string::npos; at += margin.size())
        shown.replace(at, 1, margin);
    }
    inserted += "," + indent + Json(key).dump() + ": " + shown;
  }
  const size_t end = text.find_last_not_of(" \t\r\n", close - 1);
  return text.substr(0, end + 1) + inserted + text.substr(end + 1);
}

}  // namespace

std::string with_twin_keys(const std::string& text) {
  const Json json = Json::parse(text);
  Json additions = Json::object();
  if (!json.contains("torch_dtype") && json.contains("dtype")) additions["torch_dtype"] = json["dtype"];
  if (!json.contains("dtype") && json.contains("torch_dtype")) additions["dtype"] = json["torch_dtype"];

  const bool has_new = json.contains("rope_parameters") && json["rope_parameters"].is_object();
  if (has_new) {
    Json scaling = json["rope_parameters"];
    if (!json.contains("rope_theta")) additions["rope_theta"] = scaling.value("rope_theta", Json());
    scaling.erase("rope_theta");
    const std::string type = scaling.value("rope_type", scaling.value("type", std::string("default")));
    if (!json.contains("rope_scaling")) additions["rope_scaling"] = type == "default" ? Json() : scaling;
  } else if (json.contains("rope_theta") || json.contains("rope_scaling")) {
    Json parameters = Json::object();
    if (json.contains("rope_scaling") && json["rope_scaling"].is_object()) parameters = json["rope_scaling"];
    if (!parameters.contains("rope_type"))
      parameters["rope_type"] = parameters.value("type", std::string("default"));
    if (json.contains("rope_theta")) parameters["rope_theta"] = json["rope_theta"];
    if (!json.contains("rope_parameters")) additions["rope_parameters"] = parameters;
  }
  if (additions.empty()) return text;

  const std::string result = append_keys(text, additions);
  Json wanted = json;
  wanted.update(additions);
  SLUICE_CHECK(Json::parse(result, nullptr, false) == wanted, "config.json with twin keys");
  return result;
}

std::string with_dtype(const std::string& text, const std::string& dtype) {
  const Json json = Json::parse(text);
  Json wanted = json;
  std::string result = text;
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (!json.contains(key)) continue;
    wanted[key] = dtype;
    const std::string quoted = Json(key).dump(), old = json[key].dump();
    const size_t colon = result.find(':', result.find(quoted) + quoted.size());
    const size_t value = result.find_first_not_of(" \t\r\n", colon + 1);
    if (result.compare(value, old.size(), old) == 0) result.replace(value, old.size(), Json(dtype).dump());
  }
  // The first such key may have been a nested one; then the file is written anew, in its order.
  return Json::parse(result, nullptr, false) == wanted ? result : wanted.dump(2) + "\n";
}

}  // namespace sluice::engine
