// JSON as people write it: every error has a line, a key given twice is an error, and each key's line is
// remembered.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace sluice::configs {

using Json = nlohmann::ordered_json;

struct JsonText {
  Json value;
  std::map<std::string, int>
      lines;  // line of a key by its dotted path (keys of objects inside arrays are left out)
};

// Strict JSON. Error(config) "name:line:column: ..." for syntax, a repeated key, or nesting beyond 32 levels.
JsonText parse_json(std::string_view text, const std::string& name);

// Blanks what DeepSpeed's reader allows beyond JSON: comments (#, //, /* */) and commas before a closing
// bracket. Length and line numbers stay as they are.
std::string relax_json(std::string_view text);

// One line of JSON for messages; never throws on text that is not UTF-8.
std::string show(const Json& value);
// The same, but a text as it is, without quotes: as --set takes it.
std::string plain(const Json& value);

}  // namespace sluice::configs
