#include "apps/machine_choice.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "apps/training_options.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/units.h"
#include "configs/machine_profile.h"
#include "engine/machine_measure.h"
#include "engine/runtime.h"
#include "gpu/cuda_device.h"
#include "io/drive_rates.h"

namespace sluice::apps {
namespace {

namespace fs = std::filesystem;
using offload::Machine;

fs::path existing(fs::path folder) {
  folder = fs::absolute(folder);
  while (!fs::exists(folder)) folder = folder.parent_path();
  return folder;
}

// Of machine.device "cuda": which one it is; else empty.
std::string gpu_of(const configs::RunConfig& config) {
  if (config.machine.device != configs::DeviceType::cuda) return "";
  if (const gpu::CudaUse use = gpu::can_use_cuda(); !use.usable)
    base::fail(base::ErrorKind::config,
               "machine.device is \"cuda\", and no CUDA device can be used: {}. See `sluice doctor`, or take \"cpu\"; to plan for another "
               "machine, name its profile with --machine",
               use.reason);
  return gpu::identify_cuda();
}

engine::MeasureOptions measure_options(const configs::RunConfig& c, const engine::HfConfig& model) {
  engine::MeasureOptions o;
  for (const fs::path& path : c.storage.paths) o.directories.push_back(existing(path));
  if (o.directories.empty()) o.directories = {existing(c.run.dir)};
  o.config = model;
  o.schema = c.schema();
  o.micro_batch = c.micro_batch();
  o.sequence = c.data.sequence_length;
  o.loss_chunk = static_cast<int64_t>(c.model.loss_chunk);
  o.gpu = gpu_of(c);
  o.deterministic = c.run.deterministic;
  if (o.gpu.empty()) o.compute_threads = static_cast<int>(c.machine.compute_threads.value_or(0));
  o.optimizer_threads = static_cast<int>(c.execution.optimizer_threads.value_or(0));
  return o;
}

// A profile that cannot be kept costs a measurement the next time, nothing else.
bool keep(const Machine& machine, const fs::path& file) {
  try {
    std::error_code ignored;
    fs::create_directories(file.parent_path(), ignored);
    configs::write_machine(machine, file);
    return true;
  } catch (const base::Error& error) {
    spdlog::warn("the profile of this machine is not kept: {}", error.what());
    return false;
  }
}

fs::path profile_of(const engine::MeasureOptions& options) {
  const std::string key = engine::machine_key(options);
  return profile_cache() / fmt::format("machine-{}.json", base::hash_hex(base::xxh3(key.data(), key.size())));
}

std::string age_text(const fs::path& file) {
  const auto age = std::chrono::duration_cast<std::chrono::minutes>(fs::file_time_type::clock::now() - fs::last_write_time(file)).count();
  const auto ago = [](int64_t count, const char* unit) { return fmt::format("{} {}{} ago", count, unit, count == 1 ? "" : "s"); };
  if (age < 1) return "just now";
  return age < 60 ? ago(age, "minute") : age < 48 * 60 ? ago(age / 60, "hour") : ago(age / 60 / 24, "day");
}

// known: as Machine has it.
Machine measured(Machine machine, std::string known) {
  machine.known = std::move(known);
  if (!machine.busy.empty())
    spdlog::warn("this machine was busy when it was measured ({}): predictions are rough; --measure measures it again when it is quiet", machine.busy);
  return machine;
}

std::optional<Machine> kept_profile(const fs::path& file) {
  if (!fs::exists(file)) return std::nullopt;
  try {
    return measured(configs::read_machine(file), fmt::format("measured {}, {}; --measure takes it again", age_text(file), file.string()));
  } catch (const base::Error& error) {
    spdlog::warn("{}; it is left out", error.what());
    return std::nullopt;
  }
}

Machine measured_machine(const configs::RunConfig& config, const engine::HfConfig& model, bool again) {
  engine::MeasureOptions options = measure_options(config, model);
  fs::path file = profile_of(options);
  if (!again)
    if (const auto kept = kept_profile(file)) return *kept;
  if (const fs::path full = io::too_full_to_measure(options.directories); !full.empty()) {
    spdlog::warn("{} has {} free, too little to measure the drive: its rates stay unknown", full.string(), base::format_bytes(fs::space(full).available));
    options.directories.clear();
    file = profile_of(options);
    if (!again)
      if (const auto kept = kept_profile(file)) return *kept;
  }
  spdlog::info("measuring this machine (a few seconds, once)");
  const Machine machine = engine::measure_machine(options);
  if (keep(machine, file))
    if (const auto kept = kept_profile(file)) return *kept;
  return measured(machine, "measured just now");
}

}  // namespace

fs::path profile_cache() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache != nullptr && *cache != '\0') return fs::path(cache) / "sluice";
  return (home != nullptr && *home != '\0' ? fs::path(home) / ".cache" : fs::temp_directory_path()) /
         "sluice";
}

Machine choose_machine(const std::string& name, const configs::RunConfig& config,
                       const engine::HfConfig& model, bool again) {
  if (!name.empty()) return configs::find_machine(name);
  return with_memory(measured_machine(config, model, again), config);
}

std::optional<Machine> known_machine(const configs::RunConfig& config, const engine::HfConfig& model) {
  const auto kept = kept_profile(profile_of(measure_options(config, model)));
  if (!kept) return std::nullopt;
  return with_memory(*kept, config);
}

Machine with_memory(Machine machine, const configs::RunConfig& config) {
  if (config.machine.device == configs::DeviceType::cuda) {
    machine.gpu_bytes = device_memory(config);
    machine.host_bytes = host_memory(config);
    return machine;
  }
  const uint64_t gpu = config.memory.gpu.value_or(0), host = config.memory.host.value_or(0);
  machine.gpu_bytes = engine::memory_budget(gpu, host);
  machine.host_bytes = engine::memory_budget(host, gpu);
  return machine;
}

Machine shared_by(Machine m, uint64_t ranks) {
  const auto share = static_cast<double>(ranks);
  for (double* rate : {&m.disk_read, &m.disk_write, &m.disk_mixed, &m.dram, &m.adam}) *rate /= share;
  for (uint64_t* bytes : {&m.host_bytes, &m.disk_bytes}) *bytes /= ranks;
  if (m.compute_cores > 0) {  // the device is emulated: the same cores
    for (double* rate : {&m.compute, &m.h2d, &m.d2h, &m.copy_both, &m.net}) *rate /= share;
    m.gpu_bytes /= ranks;
  }
  return m;
}

Machine with_emulated_rates(Machine m, const configs::MachineOptions& options) {
  const configs::LinkOptions& links = options.links;
  // How many times as fast that is.
  const auto set = [](double& rate, const std::optional<double>& wanted) {
    const double before = std::exchange(rate, wanted.value_or(rate));
    return before > 0 ? rate / before : 1;
  };
  const double read = set(m.disk_read, links.disk_read), write = set(m.disk_write, links.disk_write);
  m.disk_mixed = std::min(m.disk_mixed * std::max({1.0, read, write}), m.disk_read + m.disk_write);
  const double in = set(m.h2d, links.h2d), out = set(m.d2h, links.d2h);
  m.copy_both = std::min(m.copy_both * std::max({1.0, in, out}), m.h2d + m.d2h);
  // A throttled copy waits between its pieces: cores are for bytes, not for time. A computation that is only
  // timed takes none.
  m.h2d_cores *= std::min(1.0, in);
  m.d2h_cores *= std::min(1.0, out);
  set(m.net, links.net);
  set(m.net_latency, links.net_latency);
  set(m.compute, options.compute);
  if (options.compute) m.compute_cores = 0;
  return m;
}

}  // namespace sluice::apps
