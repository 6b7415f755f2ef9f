#include "configs/explain.h"

#include "configs/keys.h"
#include "configs/resolve.h"

namespace sluice::configs {
namespace {

bool applies(const Key& key, const RunConfig& config) {
  const std::string section = "scheduler.params.";
  return !key.path.starts_with(section) ||
         scheduler_uses(config.scheduler.type, key.path.substr(section.size()));
}

// The place of a dotted path in nested objects.
Json& at_path(Json& root, std::string_view path) {
  Json* at = &root;
  for (size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
    at = &(*at)[std::string(path.substr(0, dot))];
    path.remove_prefix(dot + 1);
  }
  return (*at)[std::string(path)];
}

std::string value_text(const Json& value) {
  return value.is_null() ? "-" : plain(value);
}

}  // namespace

Json resolved_json(const RunConfig& config) {
  Json root = Json::object();
  for (const Key& key : keys()) {
    Json value = key.write(config);
    // steps that were chosen from epochs are not an input: the two exclude each other.
    if (key.path == "steps" && config.epochs) continue;
    if (!value.is_null() && applies(key, config)) at_path(root, key.path) = std::move(value);
  }
  return root;
}

std::vector<Explained> explain(const RunConfig& config) {
  std::vector<Explained> rows;
  for (const Key& key : keys()) {
    if (!applies(key, config)) continue;
    const Origin origin = origin_of(config, key.path);
    const auto reason = config.reasons.find(key.path);
    const bool has_reason = reason != config.reasons.end() && origin.kind == Origin::Kind::file;
    rows.push_back({key.path, value_text(key.write(config)), has_reason ? origin.text + ": " + reason->second : origin.text, key.help});
  }
  return rows;
}

namespace {

std::vector<Difference> compare(const RunConfig& stored, const RunConfig& now, bool numeric) {
  std::vector<Difference> differences;
  for (const Key& key : keys()) {
    if (key.numeric != numeric) continue;
    const Json before = key.write(stored), after = key.write(now);
    if (before != after) differences.push_back({key.path, value_text(before), value_text(after)});
  }
  return differences;
}

}  // namespace

std::vector<Difference> compare_numeric_settings(const RunConfig& stored, const RunConfig& now) {
  return compare(stored, now, true);
}

std::vector<Difference> compare_free_settings(const RunConfig& stored, const RunConfig& now) {
  return compare(stored, now, false);
}

}  // namespace sluice::configs
