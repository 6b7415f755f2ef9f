#include "engine/host_rates.h"

#include <cstring>
#include <thread>

#include "base/units.h"

namespace sluice::engine {
namespace {

using base::operator""_MiB;

constexpr size_t kPart = 64_MiB;  // of each core, for each of two arrays

uint64_t sum_of(const std::byte* data, size_t bytes) {
  using Vec = uint64_t __attribute__((vector_size(32), may_alias));
  Vec sum[4]{};
  for (size_t i = 0; i < bytes; i += sizeof sum)
    for (size_t j = 0; j < 4; ++j) sum[j] += *reinterpret_cast<const Vec*>(data + i + j * sizeof(Vec));
  uint64_t all = 0;
  for (const Vec& s : sum) all += s[0] ^ s[1] ^ s[2] ^ s[3];
  return all;
}

}  // namespace

AdamWork::AdamWork(int threads, size_t tiles)
    : tiles_(tiles),
      arena_(tiles * kRateTile * kStateBytes, "measuring Adam"),
      adam_({.threads = threads, .target = cpu_adam::Target::best}),
      stream_(threads),
      spans_{{0, kRateTile, 0}},
      groups_{cpu_adam::make_step_group({.lr = 1e-5}, 10)} {}

cpu_adam::TileUpdate AdamWork::next() {
  std::byte* tile = arena_.data() + call_++ % tiles_ * kRateTile * kStateBytes;
  const auto at = [&](size_t bytes_before) { return tile + kRateTile * bytes_before; };
  return {.state = {reinterpret_cast<uint16_t*>(at(0)), reinterpret_cast<int16_t*>(at(2)), nullptr, reinterpret_cast<float*>(at(4)),
                    reinterpret_cast<float*>(at(8))},
          .count = kRateTile,
          .grad = {at(12), cpu_adam::GradType::bf16},
          .spans = spans_,
          .groups = groups_};
}

void AdamWork::update(bool hashes) {
  cpu_adam::TileUpdate tile = next();
  if (hashes) tile.hashes = &hashes_;
  adam_.update(tile);
}

void AdamWork::stream() { stream_.run(next()); }

DramWork::DramWork(unsigned cores) : cores_(cores), arena_(2 * kPart * cores, "measuring DRAM") {}

void DramWork::run(Pass pass) const {
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < cores_; ++t)
    threads.emplace_back([part = arena_.data() + 2 * kPart * t, pass] {
      if (pass == Pass::copy) std::memcpy(part, part + kPart, kPart);
      if (pass == Pass::write) std::memset(part, static_cast<int>(reinterpret_cast<uintptr_t>(part) >> 27 & 127), kPart);
      if (pass == Pass::read) asm volatile("" : : "r"(sum_of(part, kPart)));
    });
}

double DramWork::bytes(Pass pass) const { return static_cast<double>(kPart * cores_) * (pass == Pass::copy ? 2 : 1); }

}  // namespace sluice::engine
