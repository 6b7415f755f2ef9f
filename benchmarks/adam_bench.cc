// Adam on one tile after another, next to a plain in-place pass over the same mix of bytes (grad 2 read; hi
// 2, lo 2, m 4, v 4 read and written), all larger than the last-level cache. Rates are GB/s of DRAM traffic,
// 26 bytes per parameter.
//
// Lion's rate is of its own 18 bytes. With the old state saved 12 more are written, which is not counted: its rate shows what that costs.
//
// The stream and the kernels alternate, and the best rounds are compared, because the rate of a shared machine drifts. Whole step: the
// norm of all tiles, then their update. peers/adam.py alternates this with others' optimizers; other kernels and instruction sets: kernel_bench.
//   adam_bench [--threads N] [--tiles N] [--rounds N] [--json]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
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
  Tile() : arena(kTile * 14, "adam_bench"), shadow(kTile * 12, "adam_bench") {}
  template <class T>
  T* at(size_t bytes_before) const {
    return reinterpret_cast<T*>(arena.data() + kTile * bytes_before);
  }
  uint16_t* hi() const { return at<uint16_t>(0); }
  int16_t* lo() const { return at<int16_t>(2); }
  float* m() const { return at<float>(4); }
  float* v() const { return at<float>(8); }
  uint16_t* grad() const { return at<uint16_t>(12); }
  base::Arena arena, shadow;
};

double seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double best(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

std::map<std::string, std::vector<double>> measure(int threads, size_t tile_count, int rounds) {
  std::vector<Tile> tiles(tile_count);
  for (Tile& tile : tiles)
    for (size_t i = 0; i < kTile; ++i) {
      tile.hi()[i] = static_cast<uint16_t>(0x3c00 + i % 512);
      tile.grad()[i] = static_cast<uint16_t>(0x3a00 + i % 509);
    }
  const std::vector<cpu_adam::GroupSpan> spans{{0, kTile, 0}};
  const std::vector<cpu_adam::StepGroup> groups{cpu_adam::make_step_group({.lr = 1e-5, .weight_decay = 0.1}, 10)};
  cpu_adam::LeafHashes hashes;
  std::vector<double> norms(kTile / cpu_adam::kLeaf);
  const auto update_of = [&](const Tile& t) {
    return cpu_adam::TileUpdate{.state = {t.hi(), t.lo(), nullptr, t.m(), t.v()},
                                .count = kTile,
                                .grad = {t.grad(), cpu_adam::GradType::bf16},
                                .spans = spans,
                                .groups = groups};
  };

  std::map<std::string, std::function<void()>> works;
  const auto each_tile = [&tiles](auto work) {
    return [&tiles, work] { std::ranges::for_each(tiles, work); };
  };
  const cpu_adam::AdamStream plain(threads);
  works["stream"] = each_tile([&](const Tile& t) { plain.run(update_of(t)); });
  const cpu_adam::CpuAdam adam({.threads = threads, .target = cpu_adam::Target::best});
  const auto update = each_tile([&](const Tile& t) { adam.update(update_of(t)); });
  const auto norm = each_tile([&](const Tile& t) { adam.squared_norms({t.grad(), cpu_adam::GradType::bf16}, {}, kTile, norms); });
  works["Adam"] = update;
  works["Lion"] = each_tile([&](const Tile& t) {
    cpu_adam::TileUpdate lion = update_of(t);
    lion.state.v = nullptr;
    adam.update(lion);
  });
  works["Adam, old state saved"] = each_tile([&](const Tile& t) {
    cpu_adam::TileUpdate saving = update_of(t);
    const auto at = [&](auto* like, size_t bytes_before) { return reinterpret_cast<decltype(like)>(t.shadow.data() + kTile * bytes_before); };
    saving.saved = {at(t.hi(), 0), at(t.lo(), 2), nullptr, at(t.m(), 4), at(t.v(), 8)};
    adam.update(saving);
  });
  works["Adam and leaf hashes"] = each_tile([&](const Tile& t) {
    cpu_adam::TileUpdate hashed = update_of(t);
    hashed.hashes = &hashes;
    adam.update(hashed);
  });
  works["norm"] = norm;
  works["whole step"] = [norm, update] {
    norm();
    update();
  };

  std::map<std::string, std::vector<double>> times;
  for (int round = 0; round < rounds; ++round)
    for (const auto& [name, work] : works) times[name].push_back(seconds(work));
  return times;
}

void print_table(const std::map<std::string, std::vector<double>>& times, double parameters) {
  const double stream_seconds = best(times.at("stream"));
  for (const auto& [name, all] : times) {
    const double s = best(all);
    const double bytes = name == "norm" ? 2 : name == "Lion" ? kBytesPerParameter - 8 : name == "whole step" ? kBytesPerParameter + 2 : kBytesPerParameter;
    fmt::print("{:30} {:6.1f} GB/s  {:7.0f} Mparam/s  {:5.3f} ns/param", name, bytes * parameters / s / 1e9, parameters / s / 1e6, s / parameters * 1e9);
    if (bytes == kBytesPerParameter) fmt::print("  {:5.1f} % of stream", 100 * stream_seconds / s);
    fmt::print("\n");
  }
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  int threads = 1, rounds = 15;
  size_t tiles = 8;
  bool json = false;
  CLI::App app{"CPU Adam against an in-place stream of the same bytes"};
  app.add_option("--threads", threads, "of each kernel")->check(CLI::PositiveNumber);
  app.add_option("--tiles", tiles, "of 2 Mi parameters, 28 MiB each and 24 for the state that is saved")->check(CLI::PositiveNumber);
  app.add_option("--rounds", rounds, "over all tiles")->check(CLI::PositiveNumber);
  app.add_flag("--json", json, "seconds of every round");
  CLI11_PARSE(app, argc, argv);
  const auto times = sluice::measure(threads, tiles, rounds);
  if (json)
    fmt::print("{}\n", nlohmann::ordered_json(times).dump());
  else
    sluice::print_table(times, static_cast<double>(sluice::kTile * tiles));
}
