// Each kernel of cpu_adam by itself: for every instruction set of this CPU, with one thread and with all, on a leaf, which stays in the second
// cache, and on 16 Mi elements, which do not. What Adam reaches of a stream of the same bytes, and a whole step: adam_bench.
// Options are google-benchmark's:
//   kernel_bench [--benchmark_filter=REGEX] [--benchmark_repetitions=N] [--benchmark_enable_random_interleaving=true] [--benchmark_out=FILE] ...
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "base/arena.h"
#include "cpu_adam/adam.h"

namespace sluice {
namespace {

using cpu_adam::CpuAdam;
using cpu_adam::Gradient;
using cpu_adam::GradType;
using cpu_adam::Target;
using cpu_adam::TileState;

struct Kind {
  const char* name;
  GradType grad;
  bool split, half, variance;
  // Of an element: the gradient and the state read, the state and the rounded copy written.
  double bytes() const {
    const double state = 4 + 4 + (variance ? 4 : 0);
    return static_cast<double>(cpu_adam::element_bytes(grad)) + 2 * state + (half ? 2 : 0);
  }
};
constexpr Kind kKinds[] = {{"Adam, bf16", GradType::bf16, true, false, true},
                           {"Adam, fp16", GradType::fp16, false, true, true},
                           {"Adam, fp32", GradType::fp32, false, false, true},
                           {"Lion, bf16", GradType::bf16, true, false, false},
                           {"Lion, fp16", GradType::fp16, false, true, false},
                           {"Lion, fp32", GradType::fp32, false, false, false}};

// Arrays of so many elements; small positive numbers, whatever type they are read as.
class Arrays {
 public:
  explicit Arrays(size_t count) : count_(count), arena_(count * kBytes, "kernel_bench") {
    auto* words = reinterpret_cast<uint32_t*>(arena_.data());
    std::fill(words, words + arena_.size() / sizeof(*words), 0x3c003c00u);
  }
  TileState state(const Kind& kind) const {
    return {kind.split ? at<uint16_t>(0) : nullptr, kind.split ? at<int16_t>(2) : nullptr, kind.split ? nullptr : at<float>(0), at<float>(4),
            kind.variance ? at<float>(8) : nullptr, kind.half ? at<uint16_t>(16) : nullptr};
  }
  Gradient gradient(GradType type) const { return {at<std::byte>(12), type}; }
  size_t count() const { return count_; }

 private:
  static constexpr size_t kBytes = 18;  // 4 of the master, m, v, and the gradient each, 2 of the rounded copy
  template <class T>
  T* at(size_t bytes_before) const {
    return reinterpret_cast<T*>(arena_.data() + count_ * bytes_before);
  }
  const size_t count_;
  const base::Arena arena_;
};

void count_work(benchmark::State& state, size_t elements, double bytes) {
  const auto all = static_cast<double>(state.iterations()) * static_cast<double>(elements);
  state.SetItemsProcessed(static_cast<int64_t>(all));
  state.SetBytesProcessed(static_cast<int64_t>(all * bytes));
}

void update(benchmark::State& state, const CpuAdam& adam, size_t count, const Kind& kind, bool hashes) {
  const Arrays arrays(count);
  const std::vector<cpu_adam::GroupSpan> spans{{0, count, 0}};
  const std::vector<cpu_adam::StepGroup> groups{cpu_adam::make_step_group({.lr = 1e-5, .weight_decay = 0.1}, 10)};
  cpu_adam::LeafHashes found;
  const cpu_adam::TileUpdate tile{.state = arrays.state(kind),
                                  .count = count,
                                  .grad = arrays.gradient(kind.grad),
                                  .spans = spans,
                                  .groups = groups,
                                  .hashes = hashes ? &found : nullptr};
  for (auto _ : state) adam.update(tile);
  count_work(state, count, kind.bytes());
}

void norm(benchmark::State& state, const CpuAdam& adam, size_t count, GradType type) {
  const Arrays arrays(count);
  std::vector<double> sums((count + cpu_adam::kLeaf - 1) / cpu_adam::kLeaf);
  for (auto _ : state) adam.squared_norms(arrays.gradient(type), {}, count, sums);
  count_work(state, count, static_cast<double>(cpu_adam::element_bytes(type)));
}

void convert(benchmark::State& state, const CpuAdam& adam, size_t count, bool split) {
  const Arrays split_arrays(count), whole_arrays(count);
  const TileState parts = split_arrays.state(kKinds[0]), whole = whole_arrays.state(kKinds[2]);
  for (auto _ : state) split ? adam.split(whole.p, parts.hi, parts.lo, count) : adam.join(parts.hi, parts.lo, whole.p, count);
  count_work(state, count, 8);
}

void copy(benchmark::State& state, const CpuAdam& adam, size_t count) {
  const Arrays from(count), to(count);
  for (auto _ : state) adam.copy(from.state(kKinds[0]), to.state(kKinds[0]), count);
  count_work(state, count, 24);
}

void add(Target target, const char* target_name, int threads, size_t count) {
  const auto register_one = [&](const std::string& what, auto work) {
    const std::string name = fmt::format("{}/{}/{} threads/{}", what, target_name, threads, count == cpu_adam::kLeaf ? "a leaf" : "16 Mi");
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
      const CpuAdam adam({.threads = threads, .target = target});
      work(state, adam);
    })->UseRealTime();
  };
  for (const Kind& kind : kKinds)
    for (const bool hashes : {false, true})
      register_one(fmt::format("{}{}", kind.name, hashes ? " and hashes" : ""),
                   [=](benchmark::State& state, const CpuAdam& adam) { update(state, adam, count, kind, hashes); });
  for (const auto& [name, type] : {std::pair{"norm, bf16", GradType::bf16}, {"norm, fp16", GradType::fp16}, {"norm, fp32", GradType::fp32}})
    register_one(name, [=, type = type](benchmark::State& state, const CpuAdam& adam) { norm(state, adam, count, type); });
  for (const bool split : {true, false})
    register_one(split ? "split" : "join", [=](benchmark::State& state, const CpuAdam& adam) { convert(state, adam, count, split); });
  if (target == Target::best) register_one("copy", [=](benchmark::State& state, const CpuAdam& adam) { copy(state, adam, count); });
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  using sluice::cpu_adam::Target;
  const int all = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (const size_t count : {sluice::cpu_adam::kLeaf, size_t{16} << 20})
    for (const auto& [target, name] : {std::pair{Target::best, "best"}, {Target::avx512, "AVX-512"}, {Target::avx2, "AVX2"}, {Target::scalar, "scalar"}}) {
      if (!sluice::cpu_adam::is_supported(target)) continue;
      sluice::add(target, name, 1, count);
      if (all > 1 && count != sluice::cpu_adam::kLeaf) sluice::add(target, name, all, count);
    }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
