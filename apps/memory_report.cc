#include "apps/memory_report.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "apps/run_dir.h"
#include "apps/run_memory.h"
#include "apps/shadow_choice.h"
#include "base/error.h"
#include "base/units.h"
#include "offload/store_files.h"

namespace sluice::apps {
namespace {

using offload::Placement;

std::string memory_table(const engine::MemoryReport& memory) {
  std::string text = fmt::format("{:<6} {:<24} {:>12} {:>12}\n", "place", "purpose", "need", "have");
  for (const char* place : {"gpu", "host", "disk"}) {
    for (const auto& row : memory.rows)
      if (row.place == place)
        text += fmt::format("{:<6} {:<24} {:>12}               {}{}\n", row.place, row.purpose, base::format_bytes(row.bytes),
                            how_known(row), row.beside ? ", beside the total" : "");
    const std::string name = place;
    const uint64_t have = name == "gpu"    ? memory.gpu_have
                          : name == "host" ? memory.host_have
                                           : memory.disk_have;
    text += fmt::format("{:<6} {:<24} {:>12} {:>12}\n", place, "total",
                        base::format_bytes(total(memory.rows, place)),
                        have == 0 ? "?" : base::format_bytes(have));
  }
  return text + "exact: follows from the plan; measured: counted on the device; estimated: by a formula, may be some percent off\n";
}

std::string ranks_line(const configs::RunConfig& config) {
  const uint64_t world = config.run.world, micro = config.micro_batch(), accumulation = config.accumulation();
  if (world == 1) return "";
  return fmt::format(
      "\n{} ranks, ZeRO stage {}; a step's {} samples: {} on each rank, in {} micro-batch{} of {}. Need and have of gpu and host are of each rank, those of disk of "
      "all together",
      world, config.zero_optimization.stage, micro * accumulation * world, micro * accumulation, accumulation, accumulation == 1 ? "" : "es", micro);
}

// A guess needs a spare of the old state.
std::string overlap_note(const configs::RunConfig& config, const engine::MemoryReport& memory) {
  const Placement overlap = *config.execution.overlap;
  if (!guesses(overlap) || *config.storage.durable == offload::Durable::step) return "";
  if (std::ranges::any_of(memory.rows, [](const engine::MemoryRow& row) { return row.purpose == "shadows"; })) return "";
  return fmt::format(
      "\nexecution.overlap: without storage.durable \"step\" no spare of the old state is kept{}, so {} updates nothing before the gradient norm is known: "
      "it works as forward",
      needs_shadows(config, overlap) ? " (memory.shadow is 0, or less than a tile)" : "", offload::to_string(overlap));
}

// The run goes on in its store, and nothing of that is made anew.
bool keeps_store(const configs::RunConfig& config) {
  if (!RunDir(config.run.dir).has_store()) return false;
  try {
    const offload::StoredLayout stored = offload::read_layout_file(offload::layout_file(offload::store_folder(config.run.dir)));
    return stored.tile == config.storage.tile && stored.world == config.run.world && stored.slots == (config.storage.durable == offload::Durable::none ? 1u : 2u);
  } catch (const base::Error&) {  // whoever opens it says so
    return false;
  }
}

}  // namespace

uint64_t disk_available(const configs::RunConfig& config, uint64_t slots) {
  std::vector<std::filesystem::path> paths = config.storage.paths;
  if (paths.empty()) paths = {config.run.dir};
  const std::vector<double> rates = config.storage.drive_rates.value_or(std::vector<double>(paths.size(), 1));
  double all = 0;
  struct Disk {
    double rate = 0, free = 0;
  };
  std::map<uint64_t, Disk> disks;  // by file system
  for (size_t i = 0; i < paths.size(); ++i) {
    std::filesystem::path at = std::filesystem::absolute(paths[i]);
    while (!std::filesystem::exists(at)) at = at.parent_path();
    struct stat info {};
    Disk& disk = disks[stat(at.c_str(), &info) == 0 ? info.st_dev : 0];
    disk.rate += rates[i];
    disk.free = static_cast<double>(std::filesystem::space(at).available);
    all += rates[i];
  }
  double least = std::numeric_limits<double>::max();  // that one of them lets the whole store have
  for (const auto& [device, disk] : disks) least = std::min(least, disk.free * all / disk.rate);
  return static_cast<uint64_t>(least) + (keeps_store(config) ? slots : 0);
}

std::string crash_cost(const configs::RunConfig& config) {
  const Placement overlap = *config.execution.overlap;
  switch (*config.storage.durable) {
    case offload::Durable::step:
      return overlap == Placement::forward || overlap == Placement::spread
                 ? "durable: step. Every step is committed in the forward of the next; a crash costs the "
                   "step at work, and the one before "
                   "until its line says committed. No undo yet."
                 : "durable: step. Every step is committed; a crash costs the step at work. No undo yet.";
    case offload::Durable::checkpoint:
      return "durable: checkpoint. State lives in memory between commits; a crash costs all steps since the "
             "last commit.";
    case offload::Durable::none:
      return "durable: none. After a crash the run cannot be opened; only a clean exit keeps it.";
  }
  return "";
}

std::string memory_report(const configs::RunConfig& config, const offload::Layout& layout,
                          const engine::MemoryReport& memory) {
  uint64_t trainable = 0;
  for (const auto& block : layout.blocks())
    for (const auto& tensor : block.tensors) trainable += tensor.trainable ? tensor.count : 0;
  const auto blocks = std::min<size_t>(config.execution.resident_blocks.value_or(0), layout.blocks().size());
  const std::string resident = blocks == 0 ? "" : fmt::format(", first {} of {} blocks on the device", blocks, layout.blocks().size());
  return fmt::format("{} parameters, {} trainable; weights {}, state {}{}, overlap {}{}\n{}{}{}",
                     layout.parameters(), trainable,
                     offload::to_string(*config.zero_optimization.offload_param.device),
                     offload::to_string(*config.zero_optimization.offload_optimizer.device), resident,
                     offload::to_string(*config.execution.overlap), ranks_line(config), memory_table(memory), crash_cost(config),
                     overlap_note(config, memory));
}

}  // namespace sluice::apps
