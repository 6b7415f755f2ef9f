// Adam on one tile after another, next to a plain in-place pass over the same mix of bytes (grad 2 read; hi
// 2, lo 2, m 4, v 4 read and written), all larger than the last-level cache. Rates are GB/s of DRAM traffic,
// 26 bytes per parameter.
//
// The stream and the kernels alternate, and the medians are compared, because the rate of a shared machine
// drifts.
//   adam_bench [--threads N] [--tiles N] [--rounds N]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/arena.h"
#include "cpu_adam/adam.h"
#include "cpu_adam/stream.h"

namespace sluice {
namespace {

constexpr size_t kTile = 2 << 20;
constexpr double kBytesPerParameter = 26;

struct Tile {
  Tile() : arena(kTile * 14, "adam_bench") {}
  template <class T>
  T* at(size_t bytes_before) const {
    return reinterpret_cast<T*>(arena.data() + kTile * bytes_before);
  }
  uint16_t* hi() const { return at<uint16_t>(0); }
  int16_t* lo() const { return at<int16_t>(2); }
  float* m() const { return at<float>(4); }
  float* v() const { return at<float>(8); }
  uint16_t* grad() const { return at<uint16_t>(12); }
  base::Arena arena;
};

double seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double best(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

void run(int threads, size_t tile_count, int rounds) {
  std::vector<Tile> tiles(tile_count);
  for (Tile& tile : tiles)
    for (size_t i = 0; i < kTile; ++i) {
      tile.hi()[i] = static_cast<uint16_t>(0x3c00 + i % 512);
      tile.grad()[i] = static_cast<uint16_t>(0x3a00 + i % 509);
    }
  const std::vector<cpu_adam::GroupSpan> spans{{0, kTile, 0}};
  const std::vector<cpu_adam::StepGroup> groups{
      cpu_adam::make_step_group({.lr = 1e-5, .weight_decay = 0.1}, 10)};
  cpu_adam::LeafHashes hashes;
  std::vector<double> norms(kTile / cpu_adam::kLeaf);

  std::map<std::string, std::function<void(const Tile&)>> works;
  const cpu_adam::AdamStream plain(threads);
  works["stream"] = [&](const Tile& t) {
    plain.run({.state = {t.hi(), t.lo(), nullptr, t.m(), t.v()}, .count = kTile, .grad = {t.grad(), cpu_adam::GradType::bf16}});
  };
  for (const auto target : {cpu_adam::Target::avx2, cpu_adam::Target::avx512, cpu_adam::Target::scalar}) {
    if (!cpu_adam::is_supported(target)) continue;
    const auto adam =
        std::make_shared<cpu_adam::CpuAdam>(cpu_adam::CpuAdam::Options{.threads = threads, .target = target});
    const auto update = [adam, &spans, &groups](const Tile& t, cpu_adam::LeafHashes* leaf_hashes) {
      adam->update({.state = {t.hi(), t.lo(), nullptr, t.m(), t.v()},
                    .count = kTile,
                    .grad = {t.grad(), cpu_adam::GradType::bf16},
                    .spans = spans,
                    .groups = groups,
                    .hashes = leaf_hashes});
    };
    works["Adam, " + adam->describe()] = [update](const Tile& t) { update(t, nullptr); };
    if (target == cpu_adam::Target::scalar) continue;
    works["Adam and leaf hashes, " + adam->describe()] = [update, &hashes](const Tile& t) {
      update(t, &hashes);
    };
    works["norm (2 B), " + adam->describe()] = [adam, &norms](const Tile& t) {
      adam->squared_norms({t.grad(), cpu_adam::GradType::bf16}, {}, kTile, norms);
    };
  }

  std::map<std::string, std::vector<double>> times;
  for (int round = 0; round < rounds; ++round)
    for (const auto& [name, work] : works)
      times[name].push_back(seconds([&] {
        for (const Tile& tile : tiles) work(tile);
      }));

  const double parameters = static_cast<double>(kTile * tile_count);
  const double stream_seconds = best(times["stream"]);
  for (const auto& [name, all] : times) {
    const double s = best(all);
    const double bytes = name.starts_with("norm") ? 2 : kBytesPerParameter;
    fmt::print("{:44} {:6.1f} GB/s  {:7.0f} Mparam/s  {:5.3f} ns/param", name, bytes * parameters / s / 1e9,
               parameters / s / 1e6, s / parameters * 1e9);
    if (bytes == kBytesPerParameter) fmt::print("  {:5.1f} % of stream", 100 * stream_seconds / s);
    fmt::print("\n");
  }
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  int threads = 1, rounds = 15;
  size_t tiles = 8;
  CLI::App app{"CPU Adam against an in-place stream of the same bytes"};
  app.add_option("--threads", threads, "of each kernel")->check(CLI::PositiveNumber);
  app.add_option("--tiles", tiles, "of 2 Mi parameters, 28 MiB each")->check(CLI::PositiveNumber);
  app.add_option("--rounds", rounds, "over all tiles")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  sluice::run(threads, tiles, rounds);
}
