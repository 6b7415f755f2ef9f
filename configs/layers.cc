#include "configs/layers.h"

#include "base/error.h"
#include "configs/deepspeed_keys.h"
#include "configs/keys.h"

namespace sluice::configs {
namespace {

using base::ErrorKind;

void add_sections_above(const std::string& path, const Origin& origin, Layer* layer) {
  for (size_t dot = path.rfind('.'); dot != std::string::npos && dot > 0; dot = path.rfind('.', dot - 1))
    layer->insert_or_assign(path.substr(0, dot), Given{Json::object(), origin});
}

void flatten_section(const std::string& path, const Json& value, const OriginOf& origin_of, Layer* layer) {
  const Origin origin = origin_of(path);
  if (value.is_null()) {
    for (const Key& key : keys())
      if (key.path.starts_with(path + ".")) layer->insert_or_assign(key.path, Given{nullptr, origin});
    layer->insert_or_assign(path, Given{nullptr, origin});
    return;
  }
  if (!value.is_object())
    base::fail(ErrorKind::config, "{}: {} = {}: a section of keys in braces is needed", origin.text, path,
               show(value));
  layer->insert_or_assign(path, Given{Json::object(), origin});
  for (const auto& [name, item] : value.items()) {
    if (name.find('.') != std::string::npos)
      base::fail(ErrorKind::config,
                 "{}: unknown key \"{}\" in {}: names hold no dots; nest the sections instead",
                 origin_of(path + "." + name).text, name, path);
    flatten(path + "." + name, item, origin_of, layer);
  }
}

}  // namespace

void fail_unknown(const std::string& path, const Origin& origin) {
  const bool imported = origin.kind == Origin::Kind::deepspeed;
  if (!imported && find_deepspeed_key(path))
    base::fail(
        ErrorKind::config,
        "{}: the key \"{}\" of DeepSpeed has no meaning here; remove it, or import the DeepSpeed config with "
        "\"deepspeed\": FILE",
        origin.text, path);
  const auto more = imported ? deepspeed_key_names() : std::vector<std::string_view>{"deepspeed", "reasons"};
  base::fail(ErrorKind::config,
             "{}: unknown key \"{}\"; the nearest known key is \"{}\" (all keys: sluice config --keys)",
             origin.text, path, nearest_key(path, more));
}

void flatten(const std::string& path, const Json& value, const OriginOf& origin_of, Layer* layer) {
  if (path.empty()) {
    for (const auto& [name, item] : value.items()) {
      if (name.empty() || name.find('.') != std::string::npos)
        base::fail(ErrorKind::config, "{}: unknown key \"{}\": names hold no dots; nest the sections instead",
                   origin_of(name).text, name);
      flatten(name, item, origin_of, layer);
    }
  } else if (find_key(path)) {
    add_sections_above(path, origin_of(path), layer);
    layer->insert_or_assign(path, Given{value, origin_of(path)});
  } else if (is_section(path)) {
    flatten_section(path, value, origin_of, layer);
  } else if (const char* reason = not_built_yet(path)) {
    base::fail(ErrorKind::config, "{}: {} = {}: {}", origin_of(path).text, path, show(value), reason);
  } else {
    fail_unknown(path, origin_of(path));
  }
}

void set_key(const std::string& assignment, Layer* layer) {
  const size_t equals = assignment.find('=');
  if (equals == 0 || equals == std::string::npos)
    base::fail(ErrorKind::config, "--set {}: write key=value, for example --set optimizer.params.lr=1e-4",
               assignment);
  const std::string path = assignment.substr(0, equals);
  const std::string text = assignment.substr(equals + 1);
  const Key* key = find_key(path);
  Json value = text;  // a bare word, unless it is JSON
  if (Json::accept(text)) {
    JsonText parsed = parse_json(text, "--set " + path);
    const bool word = key && key->text && parsed.value.is_primitive() && !parsed.value.is_string() &&
                      !parsed.value.is_null();
    bool allowed_as_word = false;
    if (word) {  // a folder may be called 2024, but a layer count is not the text "4"
      RunConfig scratch;
      allowed_as_word = !key->read(scratch, parsed.value) && key->read(scratch, value);
    }
    if (!allowed_as_word) value = std::move(parsed.value);
  }
  flatten(
      path, value,
      [](const std::string&) {
        return Origin{Origin::Kind::command_line, "--set"};
      },
      layer);
}

void merge(Layer&& later, Layer* onto) {
  for (auto& [path, given] : later) onto->insert_or_assign(path, std::move(given));
}

void apply_layer(const Layer& layer, RunConfig* config) {
  for (const Key& key : keys()) {
    const auto found = layer.find(key.path);
    if (found == layer.end() || found->second.value.is_null()) continue;
    const auto& [value, origin] = found->second;
    if (!key.read(*config, value)) {
      const char* reason = not_built_value(key.path, value);
      base::fail(ErrorKind::config, "{}: {} = {}: {}{}", origin.text, key.path, show(value),
                 reason ? reason : "not allowed; allowed: ", reason ? "" : key.allowed);
    }
    config->origins[key.path] = origin;
  }
}

}  // namespace sluice::configs
