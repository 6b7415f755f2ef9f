#include "configs/read_config.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "configs/deepspeed_import.h"
#include "configs/keys.h"
#include "configs/layers.h"

namespace sluice::configs {
namespace {

using base::ErrorKind;
constexpr uintmax_t kMaxFile = 4 << 20;

std::string read_file(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error))
    base::fail(ErrorKind::config, "{}: {}", file.string(),
               error ? error.message() : "not a regular file; a JSON config is needed");
  if (std::filesystem::file_size(file, error) > kMaxFile)
    base::fail(ErrorKind::config, "{}: larger than 4 MiB; not a config", file.string());
  std::ifstream stream(file, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!stream) base::fail(ErrorKind::config, "{}: cannot be read: {}", file.string(), std::strerror(errno));
  return text;
}

// Origins of the keys of one document: "<label>:<line>".
OriginOf origins_in(Origin::Kind kind, std::string label, const JsonText& document, std::string prefix = "") {
  return [kind, label = std::move(label), lines = document.lines,
          prefix = std::move(prefix)](const std::string& path) {
    const auto line = lines.find(prefix + path);
    return Origin{kind, line == lines.end() ? label : fmt::format("{}:{}", label, line->second)};
  };
}

void require_object(const Json& value, const std::string& name) {
  if (!value.is_object())
    base::fail(ErrorKind::config, "{}: a config is one JSON object in braces, not {}", name,
               value.type_name());
}

// "deepspeed": FILE | {...}
void import_source(const Json& source, const JsonText& own, const std::filesystem::path& file, Layer* layer,
                   std::vector<std::string>* notes) {
  if (source.is_object())
    return import_deepspeed(
        source, origins_in(Origin::Kind::deepspeed, "deepspeed in " + file.string(), own, "deepspeed."),
        layer, notes);
  if (!source.is_string())
    base::fail(ErrorKind::config,
               "{}: deepspeed = {}: the path of a DeepSpeed config, or its content in braces, is needed",
               file.string(), show(source));
  const std::filesystem::path imported = file.parent_path() / source.get<std::string>();
  const JsonText document = parse_json(relax_json(read_file(imported)), imported.string());
  require_object(document.value, imported.string());
  import_deepspeed(document.value, origins_in(Origin::Kind::deepspeed, imported.string(), document), layer,
                   notes);
}

// --set deepspeed=... replaces the file's. Returns the last one given.
Json take_deepspeed(Json* own, std::vector<std::string>* set) {
  Json source = nullptr;
  if (const auto found = own->find("deepspeed"); found != own->end()) {
    source = *found;
    own->erase("deepspeed");
  }
  std::erase_if(*set, [&](const std::string& assignment) {
    if (!assignment.starts_with("deepspeed=")) return false;
    const std::string text = assignment.substr(assignment.find('=') + 1);
    source = Json::accept(text) ? parse_json(text, "--set deepspeed").value : Json(text);
    return true;
  });
  return source;
}

// "reasons": {KEY: TEXT}, as sluice tune writes them beside its values.
std::map<std::string, std::string> take_reasons(JsonText* own, const std::filesystem::path& file) {
  std::map<std::string, std::string> reasons;
  const auto found = own->value.find("reasons");
  if (found == own->value.end()) return reasons;
  const auto at = origins_in(Origin::Kind::file, file.string(), *own);
  if (!found->is_object()) base::fail(ErrorKind::config, "{}: reasons = {}: texts by key, in braces, are needed", at("reasons").text, show(*found));
  for (const auto& [key, text] : found->items()) {
    const Origin origin = at("reasons." + key);
    if (find_key(key) == nullptr) fail_unknown(key, origin);
    if (!text.is_string()) base::fail(ErrorKind::config, "{}: reasons: {} = {}: a text is needed", origin.text, key, show(text));
    reasons[key] = text.get<std::string>();
  }
  own->value.erase("reasons");
  return reasons;
}

// Our defaults, and one rule, that differ from what DeepSpeed would do with the same file.
void note_defaults(const Layer& imported, RunConfig* config) {
  const auto is_default = [&](const char* key) { return !config->origins.contains(key); };
  if (config->scheduler.type != SchedulerType::none && is_default("scheduler.params.warmup_type"))
    config->notes.push_back(
        "deepspeed: scheduler.params.warmup_type is not given: linear here, log in DeepSpeed");
  if (is_default("bf16.enabled") && !config->fp16.enabled)
    config->notes.push_back("deepspeed: bf16.enabled is not given: true here; DeepSpeed would train in fp32");
  if (config->fp16.enabled && config->scheduler.type != SchedulerType::none)
    config->notes.push_back("deepspeed: a step that fp16 skips moves the scheduler on here; DeepSpeed's stands still");
  if (imported.contains("zero_optimization") && is_default("zero_optimization.stage"))
    config->notes.push_back("deepspeed: zero_optimization.stage is not given: 3 here, 0 in DeepSpeed");
}

}  // namespace

RunConfig parse_config(std::string_view text, const std::filesystem::path& file, const ReadOptions& options) {
  JsonText own = parse_json(text, file.string());
  require_object(own.value, file.string());
  RunConfig config;
  config.name = file.string();

  config.reasons = take_reasons(&own, file);
  std::vector<std::string> set = options.set;
  const Json deepspeed = take_deepspeed(&own.value, &set);
  Layer layer, imported;
  if (!deepspeed.is_null()) import_source(deepspeed, own, file, &imported, &config.notes);
  merge(Layer(imported), &layer);
  Layer from_file;
  flatten("", own.value, origins_in(Origin::Kind::file, file.string(), own), &from_file);
  merge(std::move(from_file), &layer);
  for (const std::string& assignment : set) set_key(assignment, &layer);

  // Offload sections keep DeepSpeed's meaning: one that is not given is "none". Without zero_optimization the
  // tiers stay open.
  const auto zero = layer.find("zero_optimization");
  if (zero != layer.end() && !zero->second.value.is_null()) {
    config.zero_optimization.offload_param.device = offload::Tier::none;
    config.zero_optimization.offload_optimizer.device = offload::Tier::none;
  }
  apply_layer(layer, &config);
  if (options.world) {
    const auto given = config.origins.find("run.world");
    if (given != config.origins.end() && config.run.world != *options.world)
      base::fail(base::ErrorKind::config, "{}: run.world = {}, but {} ranks were started", given->second.text, config.run.world,
                 *options.world);
    config.run.world = *options.world;
  }
  if (!deepspeed.is_null()) note_defaults(imported, &config);
  resolve(&config, options.purpose);
  return config;
}

RunConfig read_config(const std::filesystem::path& file, const ReadOptions& options) {
  return parse_config(read_file(file), file, options);
}

}  // namespace sluice::configs
