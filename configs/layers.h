// Values by dotted key, before they become a RunConfig: one layer per source, later layers win.
#pragma once
#include <functional>
#include <map>
#include <string>

#include "configs/json_text.h"
#include "configs/run_config.h"

namespace sluice::configs {

struct Given {
  Json value;  // null: back to the default
  Origin origin;
};

// Keys, and the sections above them (an empty object, or null for a section that is reset).
using Layer = std::map<std::string, Given>;

using OriginOf = std::function<Origin(const std::string& path)>;

// Puts `value`, found under the own key or section `path` ("" for a whole file), into the layer.
// Error(config) for a key that does not exist, with the nearest name, and for one that is not built yet.
void flatten(const std::string& path, const Json& value, const OriginOf& origin_of, Layer* layer);

// One "key=value" of --set: the value is JSON, or else a bare word. Error(config).
void set_key(const std::string& assignment, Layer* layer);

// Later wins.
void merge(Layer&& later, Layer* onto);

// Values into the config, each checked against its key. Error(config) with origin, key, value and what is
// allowed.
void apply_layer(const Layer& layer, RunConfig* config);

[[noreturn]] void fail_unknown(const std::string& path, const Origin& origin);

}  // namespace sluice::configs
