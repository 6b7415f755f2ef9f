// Looking keys up by name, and the nearest name of one that does not exist.
#include <algorithm>
#include <numeric>
#include <utility>

#include "configs/keys.h"

namespace sluice::configs {
namespace {

struct Later {
  std::string_view path;
  const char* reason;
};
// The path itself, what lies below it, and, when it ends with '_', what begins with it.
constexpr Later kLater[] = {
    {"scheduler.params.cycle_", "the scheduler OneCycle is not built yet"},
    {"scheduler.params.decay_", "the scheduler OneCycle is not built yet"},
    {"scheduler.params.lr_range_test_", "the scheduler LRRangeTest is not built yet"},
    {"checkpoint", "kept checkpoints are not built yet; storage.durable \"step\" commits every step, and with \"checkpoint\" "
                   "checkpoint.every says how often the newest state is committed"},
};

std::string_view parent(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}
std::string_view last_name(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}
bool is_below(std::string_view path, std::string_view section) {
  return path.size() > section.size() && path.starts_with(section) && path[section.size()] == '.';
}

}  // namespace

const Key* find_key(std::string_view path) {
  for (const Key& key : keys())
    if (key.path == path) return &key;
  return nullptr;
}

bool is_section(std::string_view path) {
  return std::any_of(keys().begin(), keys().end(), [&](const Key& key) { return is_below(key.path, path); });
}

const char* not_built_yet(std::string_view path) {
  if (find_key(path) || is_section(path)) return nullptr;
  for (const Later& later : kLater)
    if (path == later.path || is_below(path, later.path) ||
        (later.path.back() == '_' && path.starts_with(later.path)))
      return later.reason;
  return nullptr;
}

const char* not_built_value(std::string_view path, const Json& value) {
  if (path == "scheduler.type" && (value == "OneCycle" || value == "LRRangeTest"))
    return "this scheduler is not built yet; WarmupLR, WarmupDecayLR and WarmupCosineLR are";
  return nullptr;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      next[j] = std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        next[j] = std::min(next[j], before[j - 2] + 1);
    }
    before = std::exchange(row, std::exchange(next, std::move(before)));
  }
  return row[b.size()];
}

std::string nearest_key(std::string_view path, std::span<const std::string_view> more) {
  const std::string_view name = last_name(path);
  std::string best;
  size_t least = SIZE_MAX;
  const auto consider = [&](std::string_view candidate, size_t penalty) {
    const size_t distance = edit_distance(name.substr(0, 80), last_name(candidate)) * 2 + penalty;
    if (distance < least) least = distance, best = candidate;
  };
  for (const Key& key : keys())
    for (std::string_view at = key.path; !at.empty(); at = parent(at))
      consider(at, parent(at) == parent(path)
                       ? 0
                       : 3);  // a sibling wins over a key elsewhere that is one edit nearer
  for (const std::string_view candidate : more)
    consider(candidate, parent(candidate) == parent(path) ? 0 : 3);
  return best;
}

}  // namespace sluice::configs
