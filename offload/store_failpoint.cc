#include "offload/store_failpoint.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/error.h"

namespace sluice::offload {
namespace {

using namespace std::string_view_literals;

constexpr std::array kNames = {
    // Each rank passes: allocated, filled, prepared, locked, checked, begin, table, marked, open.done, commit.done and skip.done. Rank 0
    // alone passes the others.
    "create.layout"sv,     // store.tmp/layout.json is durable
    "create.allocated"sv,  // all files exist in full length
    "create.filled"sv,     // initial weights are written, not flushed
    "create.prepared"sv,   // slot 0 is flushed
    "create.published"sv,  // record 1 is durable, still under store.tmp
    "create.renamed"sv,    // RUN/store exists, its name is not durable
    "create.done"sv,      "open.locked"sv,
    "open.checked"sv,    // record, headers, tables agree; the slot is verified where it must be
    "open.rewritten"sv,  // the taken record is written again, not flushed
    // A store of another world, tile or placement is rewritten.
    "reshard.layout"sv, "reshard.allocated"sv, "reshard.filled"sv, "reshard.prepared"sv,
    "reshard.published"sv,  // record 1 is durable in store.new
    "reshard.locked"sv,     // the new files are locked
    "reshard.exchanged"sv,  // RUN/store is the new store; not durable
    "reshard.durable"sv,
    "reshard.done"sv,       // the old store is gone
    "open.done"sv,
    "dirty.marked"sv,     // durable none: the dirty mark is durable
    "commit.begin"sv,     // all extents are written
    "commit.table"sv,     // table and header are written, not flushed
    "commit.prepared"sv,  // slot file is flushed
    "commit.record"sv,    // the new record is written, not flushed
    "commit.done"sv,      "skip.record"sv, "skip.done"sv,
};

}  // namespace

std::span<const std::string_view> failpoint_names() {
  return kNames;
}

Failpoints::Failpoints(Callback callback) : callback_(std::move(callback)) {
  const char* text = std::getenv("SLUICE_FAILPOINT");
  if (text == nullptr || *text == '\0') return;
  const std::string setting = text;
  const size_t colon = setting.find(':');
  stop_at_ = setting.substr(0, colon);
  const std::string count = colon == std::string::npos ? "1" : setting.substr(colon + 1);
  char* end = nullptr;
  passes_left_ = std::strtoull(count.c_str(), &end, 10);
  if (std::find(kNames.begin(), kNames.end(), stop_at_) == kNames.end() || *end != '\0' || passes_left_ == 0)
    base::fail(base::ErrorKind::config, "SLUICE_FAILPOINT={}: want name:count with one of {}", setting,
               fmt::join(kNames, ", "));
}

void Failpoints::pass(std::string_view name) {
  if (callback_) callback_(name);
  if (name == stop_at_ && --passes_left_ == 0) _exit(137);
}

}  // namespace sluice::offload
