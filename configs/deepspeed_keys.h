// DeepSpeed's keys that are not ours: what becomes of each.
#pragma once
#include <string_view>
#include <vector>

namespace sluice::configs {

enum class DeepspeedRule {
  no_effect,    // accepted, with a note
  must_be_off,  // accepted when false, null, "none", empty or {"enabled": false}
  must_be,      // accepted when equal to `value`
};

struct DeepspeedKey {
  std::string_view path;  // the key, and all below it
  DeepspeedRule rule;
  const char* reason;
  const char* value = nullptr;  // JSON
};

// Null: DeepSpeed has no such key, or it is one of ours.
const DeepspeedKey* find_deepspeed_key(std::string_view path);
std::vector<std::string_view> deepspeed_key_names();

}  // namespace sluice::configs
