// How fast ranks exchange on this machine: comm_bench --nproc 4, or under torchrun, mpirun, srun. Rank 0 prints.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "engine/comm/comm_rates.h"
#include "engine/comm/connect.h"
#include "engine/comm/rank_launcher.h"
#include "gpu/emulated_device.h"

int main(int argc, char** argv) {
  using namespace sluice;
  CLI::App app("Gather and reduction rates between ranks of the emulated device");
  int nproc = 1;
  uint64_t mib = 64;
  double seconds = 1;
  app.add_option("--nproc", nproc, "Ranks to start on this machine");
  app.add_option("--mib", mib, "Size of the whole that is gathered or reduced");
  app.add_option("--seconds", seconds, "Of each measurement");
  CLI11_PARSE(app, argc, argv);
  try {
    const auto launch = comm::read_launch_environment();
    if (launch.launcher == comm::Launcher::none) {
      std::vector<std::string> command(argv, argv + argc);
      command[0] = std::filesystem::read_symlink("/proc/self/exe");
      return comm::run_ranks({command, nproc});
    }
    const auto device = gpu::make_plain_device({});
    const auto ranks = comm::make_comm(comm::meet(launch), {.device = device.get()});
    const auto stream = device->create_stream("comm");
    const comm::CommRates rates = measure_comm(*ranks, *device, *stream, mib << 20, seconds);
    if (launch.rank == 0)
      fmt::print("{}: gather {:.2f} GB/s, reduction {:.2f} GB/s received by each rank, latency {:.0f} us\n", ranks->describe(), rates.gather / 1e9,
                 rates.reduce / 1e9, rates.latency * 1e6);
    ranks->control().close();
    return 0;
  } catch (const base::Error& error) {
    fmt::print(stderr, "comm_bench: {}\n", error.what());
    return error.exit_code();
  }
}
