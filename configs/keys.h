// The table of all keys: one row describes a key for parsing, --set, `sluice config` and resume.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "configs/json_text.h"
#include "configs/run_config.h"

namespace sluice::configs {

struct Key {
  std::string path;     // "optimizer.params.lr"
  std::string allowed;  // "a number above 0"
  std::string help;
  bool numeric = false;  // may change bits of the result: stored with the run and compared on resume
  bool text = false;     // --set takes a bare word
  std::function<bool(RunConfig&, const Json&)>
      read;                                     // false: the value is not allowed; the config is unchanged
  std::function<Json(const RunConfig&)> write;  // null when unset
};

// In the order of the documentation. Immutable.
const std::vector<Key>& keys();
const Key* find_key(std::string_view path);  // null: no such key
bool is_section(std::string_view path);      // some key lies below it

// Keys whose meaning is settled but that nothing implements yet. Null: no such key; else why, for a message.
const char* not_built_yet(std::string_view path);

// The known key or section most like `path`, by its last name; its own siblings count as nearer.
// `more`: further names that count as known.
std::string nearest_key(std::string_view path, std::span<const std::string_view> more = {});

// Why a value that a key of this name may have in DeepSpeed is refused here for now; null: it is simply not
// allowed.
const char* not_built_value(std::string_view path, const Json& value);

// Edits (insert, delete, replace, swap of neighbours) from one word to the other.
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace sluice::configs
