#include "engine/comm/launch_environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/error.h"

namespace sluice::comm {
namespace {

using base::ErrorKind;
using base::fail;

class Variables {
 public:
  explicit Variables(std::function<const char*(const char*)> get) : get_(std::move(get)) {}

  bool has(const char* name) const { return !text(name).empty(); }
  std::string text(const char* name) const {
    const char* value = get_(name);
    return value == nullptr ? "" : value;
  }

  long number(const char* name, long low, long high) const {
    const std::string value = text(name);
    if (value.empty()) fail(ErrorKind::config, "{} is not set, but other variables of a launcher with several ranks are", name);
    long result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || end != value.data() + value.size() || result < low || result > high)
      fail(ErrorKind::config, "{}={}: expected a number from {} to {}", name, value, low, high);
    return result;
  }
  long number_or(const char* name, long low, long high, long otherwise) const {
    return has(name) ? number(name, low, high) : otherwise;
  }

 private:
  const std::function<const char*(const char*)> get_;
};

constexpr long kLargestPort = 65535;

void read_ranks(const Variables& v, LaunchEnvironment& e, const char* rank, const char* world, const char* local_rank, const char* local_world) {
  e.world = static_cast<int>(v.number(world, 1, kMostRanks));
  e.rank = static_cast<int>(v.number(rank, 0, e.world - 1));
  e.local_rank = static_cast<int>(v.number_or(local_rank, 0, kMostRanks, e.rank));
  e.local_world = static_cast<int>(v.number_or(local_world, 1, e.world, e.world));
}

void read_master(const Variables& v, LaunchEnvironment& e) {
  if (e.world == 1) return;
  if (!v.has("MASTER_ADDR"))
    fail(ErrorKind::config, "rank {} of {}: MASTER_ADDR is not set; it names the host of rank 0, MASTER_PORT a free port there", e.rank, e.world);
  e.host = v.text("MASTER_ADDR");
  e.port = static_cast<uint16_t>(v.number("MASTER_PORT", 1, kLargestPort));
}

LaunchEnvironment nproc(const Variables& v) {
  LaunchEnvironment e{.launcher = Launcher::nproc, .job = v.text("SLUICE_JOB")};
  read_ranks(v, e, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  read_master(v, e);
  if (e.rank != 0) return e;
  e.listener = static_cast<int>(v.number_or("SLUICE_LISTENER", 0, 1 << 20, -1));
  e.met = static_cast<int>(v.number_or("SLUICE_MET", 0, 1 << 20, -1));
  return e;
}

LaunchEnvironment torchrun(const Variables& v) {
  LaunchEnvironment e{.launcher = Launcher::torchrun};
  e.job = fmt::format("torchrun {} {}", v.text("TORCHELASTIC_RUN_ID"), v.text("TORCHELASTIC_RESTART_COUNT"));
  read_ranks(v, e, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  read_master(v, e);
  if (v.text("TORCHELASTIC_USE_AGENT_STORE") == "True") e.port = static_cast<uint16_t>(e.port == kLargestPort ? e.port - 1 : e.port + 1);
  return e;
}

LaunchEnvironment mpirun(const Variables& v) {
  LaunchEnvironment e{.launcher = Launcher::mpirun, .mpi = true};
  read_ranks(v, e, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  return e;
}

LaunchEnvironment by_hand(const Variables& v) {
  LaunchEnvironment e{.launcher = Launcher::variables, .job = "by hand"};
  read_ranks(v, e, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  read_master(v, e);
  return e;
}

LaunchEnvironment srun(const Variables& v) {
  LaunchEnvironment e{.launcher = Launcher::srun};
  read_ranks(v, e, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE");
  // The last of these is there only when --ntasks-per-node was given.
  const auto node = static_cast<uint64_t>(v.number_or("SLURM_NODEID", 0, kMostRanks, 0));
  for (const char* name : {"SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"})
    if (const int here = tasks_on_node(v.text(name), node); here > 0) e.local_world = here;
  const long job = v.number_or("SLURM_JOB_ID", 0, 1L << 40, 0), step = v.number_or("SLURM_STEP_ID", 0, 1L << 40, 0);
  e.job = fmt::format("slurm {}.{}", job, step);
  e.mpi = v.has("PMIX_RANK");
  if (e.mpi || e.world == 1) return e;
  if (v.has("MASTER_ADDR")) return read_master(v, e), e;
  e.host = first_host(v.text("SLURM_STEP_NODELIST"));
  if (e.host.empty()) fail(ErrorKind::config, "SLURM_STEP_NODELIST names no host; set MASTER_ADDR and MASTER_PORT");
  e.port = static_cast<uint16_t>(20000 + (job * 31 + step) % 20000);
  return e;
}

LaunchEnvironment detect(const Variables& v) {
  if (v.has("SLUICE_JOB")) return nproc(v);
  if (v.has("TORCHELASTIC_RUN_ID")) return torchrun(v);
  if (v.has("OMPI_COMM_WORLD_SIZE")) return mpirun(v);
  if (v.has("RANK") || v.has("WORLD_SIZE")) return by_hand(v);
  if (v.has("SLURM_STEP_ID") && v.has("SLURM_PROCID")) return srun(v);
  if (v.number_or("PMI_SIZE", 0, kMostRanks, 1) > 1)
    fail(ErrorKind::config, "started by the mpirun of another MPI (PMI_SIZE={}); use Open MPI's, or sluice train --nproc", v.text("PMI_SIZE"));
  return {};
}

}  // namespace

const char* to_string(Launcher launcher) {
  switch (launcher) {
    case Launcher::none: return "no launcher";
    case Launcher::nproc: return "sluice train --nproc";
    case Launcher::torchrun: return "torchrun";
    case Launcher::mpirun: return "mpirun";
    case Launcher::variables: return "RANK and WORLD_SIZE";
    case Launcher::srun: return "srun";
  }
  return "?";
}

LaunchEnvironment read_launch_environment(const std::function<const char*(const char*)>& get) {
  const Variables v(get ? get : [](const char* name) -> const char* { return std::getenv(name); });
  LaunchEnvironment e = detect(v);
  if (v.has("SLUICE_PORT") && e.listener < 0) e.port = static_cast<uint16_t>(v.number("SLUICE_PORT", 1, kLargestPort));
  return e;
}

int tasks_on_node(const std::string& list, uint64_t node) {
  uint64_t nodes = 0;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const char* at = list.data() + begin;
    const char* const stop = list.data() + end;
    int tasks = 0;
    uint64_t times = 1;
    at = std::from_chars(at, stop, tasks).ptr;
    if (stop - at > 3 && at[0] == '(' && at[1] == 'x') at = std::from_chars(at + 2, stop, times).ptr + 1;
    if (at != stop || tasks <= 0) return 0;
    nodes += times;
    if (node < nodes) return tasks;
    begin = end + 1;
  }
  return 0;
}

std::string first_host(const std::string& list) {
  const size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const size_t end = list.find_first_of(",-]", bracket + 1);
  const size_t close = list.find(']', bracket);
  if (end == std::string::npos || close == std::string::npos) return "";
  const size_t next = list.find(',', close);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1) + list.substr(close + 1, next == std::string::npos ? next : next - close - 1);
}

}  // namespace sluice::comm
