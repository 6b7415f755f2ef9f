#include <spdlog/spdlog.h>

#include <algorithm>

#include "apps/bench.h"
#include "base/error.h"
#include "base/statistics.h"
#include "base/units.h"
#include "io/disk_rate.h"

namespace sluice::apps {
namespace {

using base::operator""_MiB;
using base::operator""_GiB;
using io::DiskBurst;
using io::IoOp;

constexpr int kRounds = 5;
constexpr double kWindow = 2;  // seconds, of a sustained write

// A share of what is free, in whole blocks of 16 MiB.
io::File bench_file(const BenchOptions& options, uint64_t most) {
  const uint64_t free = std::filesystem::space(options.directory).available, bytes = std::min(most, free / 4) / 16_MiB * 16_MiB;
  if (bytes < 64_MiB)
    base::fail(base::ErrorKind::disk, "{} has {} free: too little to measure the disk; free some, or choose another --dir",
               options.directory.string(), base::format_bytes(free));
  io::File file = io::temporary_file(options.directory, bytes);
  if (file.direct()) return file;
  const std::string text = fmt::format("{} has no direct I/O (O_DIRECT): what is measured is the page cache, not a drive", options.directory.string());
  if (options.strict) base::fail(base::ErrorKind::disk, "{} (--strict: a fallback is an error)", text);
  spdlog::warn("{}", text);
  return file;
}

// Blocks that were never written are another thing than blocks that a step overwrites.
void write_once(const io::File& file) {
  DiskBurst burst(file, {.block_size = 16_MiB, .depth = 4});
  burst.run_bytes(IoOp::write, file.size());
}

Rate rate_of(DiskBurst& burst, IoOp even, IoOp odd, double seconds) {
  return {base::measure_rounds(kRounds, seconds, [&](double s) { return static_cast<double>(burst.run(even, odd, s)); }), 0};
}

}  // namespace

DiskBench bench_disk(const BenchOptions& options) {
  const io::File file = bench_file(options, options.seconds >= 5 ? 4_GiB : 256_MiB);
  write_once(file);
  DiskBench bench;
  bench.file_bytes = file.size();
  const double round = options.seconds / 40;
  const io::QueueOptions usual{.strict = options.strict};
  {
    DiskBurst burst(file, usual);
    bench.queue = burst.describe();
    bench.write = rate_of(burst, IoOp::write, IoOp::write, round);
    bench.read = rate_of(burst, IoOp::read, IoOp::read, round);
    bench.mixed = rate_of(burst, IoOp::read, IoOp::write, round);
  }
  bench.read.limit = bench.read.value();
  bench.write.limit = bench.write.value();
  for (const uint64_t block : {1_MiB, 4_MiB, 16_MiB})
    for (const unsigned depth : {2u, 8u, 16u}) {
      DiskBurst burst(file, {.block_size = block, .depth = depth, .strict = options.strict});
      const auto once = [&](IoOp op) {
        return base::measure_rounds(2, round / 2, [&](double s) { return static_cast<double>(burst.run(op, s)); }).median();
      };
      bench.cells.push_back({block, depth, once(IoOp::read), once(IoOp::write)});
      bench.read.limit = std::max(bench.read.limit, bench.cells.back().read);
      bench.write.limit = std::max(bench.write.limit, bench.cells.back().write);
    }
  // As many bytes read as written, one after the other.
  bench.mixed.limit = std::max(bench.mixed.value(), 2 / (1 / bench.read.limit + 1 / bench.write.limit));
  bench.commits = io::measure_commits(file, 4096, options.seconds / 20, usual);
  bench.flush = base::median(io::measure_commits(file, 4_MiB, options.seconds / 40, usual));
  return bench;
}

SustainedRate bench_sustained(const BenchOptions& options, double most_seconds) {
  const io::File file = bench_file(options, 256_GiB);
  DiskBurst burst(file, {.strict = options.strict});
  SustainedRate bench;
  const double begin = base::monotonic_seconds(), window = std::min(kWindow, most_seconds / (2 * SustainedRate::kFlat));
  while (!bench.settled(static_cast<double>(file.size())) && base::monotonic_seconds() - begin < most_seconds) {
    const double start = base::monotonic_seconds();
    const auto bytes = static_cast<double>(burst.run(IoOp::write, window));
    bench.add(bytes, base::monotonic_seconds() - start);
  }
  return bench;
}

}  // namespace sluice::apps
