// Passes over a file as a run reads and writes its store: 4 MiB direct transfers, 8 in flight, through the queue that a run would use.
// Prints one line of JSON a pass. disk.py beside it alternates this with fio on the same file.
//   disk_bench FILE [--size BYTES] [--op read|write] [--passes N]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <filesystem>

#include "base/rounds.h"
#include "io/disk_rate.h"

int main(int argc, char** argv) {
  std::string path, op = "read";
  uint64_t size = 0;
  int passes = 1;
  CLI::App app{"Passes over a file, as a run reads and writes its store"};
  app.add_option("FILE", path, "made of --size bytes when it does not exist; written as a whole then")->required();
  app.add_option("--size", size, "bytes of a file that is made, a multiple of 4 MiB");
  app.add_option("--op", op)->check(CLI::IsMember({"read", "write"}));
  app.add_option("--passes", passes)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    using namespace sluice;
    const bool made = !std::filesystem::exists(path);
    const io::File file = made ? io::File::create(path, size) : io::File::open(path, io::OpenMode::read_write);
    io::DiskBurst burst(file);
    const auto pass = [&](io::IoOp kind) { return static_cast<double>(burst.run_bytes(kind, file.size())); };
    if (made) pass(io::IoOp::write);
    const io::IoOp kind = op == "read" ? io::IoOp::read : io::IoOp::write;
    for (int i = 0; i < passes; ++i) {
      const double begin = base::monotonic_seconds(), cpu = base::process_cpu_seconds(), bytes = pass(kind);
      fmt::print("{{\"op\": \"{}\", \"bytes\": {:.0f}, \"seconds\": {:.6f}, \"cpu_seconds\": {:.6f}, \"queue\": \"{}\"}}\n", op, bytes,
                 base::monotonic_seconds() - begin, base::process_cpu_seconds() - cpu, burst.describe());
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "disk_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
