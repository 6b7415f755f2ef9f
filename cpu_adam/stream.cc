#include "cpu_adam/stream.h"

#include <algorithm>

#include "base/error.h"
#include "cpu_adam/kernels.h"
#include "cpu_adam/leaf_pool.h"

namespace sluice::cpu_adam {
namespace {

using Vec = uint64_t __attribute__((vector_size(32), may_alias, aligned(1)));
constexpr size_t kStep = 16;  // elements: a vector of 16-bit ones

// Adds zero, but one that the compiler does not know.
template <bool kWideGrad>
__attribute__((always_inline)) inline void pass(const Run& run, size_t whole, uint64_t zero) {
  const auto vec = [](auto* p, size_t i) __attribute__((always_inline)) { return reinterpret_cast<Vec*>(p + i); };
  const TileState& s = run.state;
  auto* const grad = static_cast<std::byte*>(const_cast<void*>(run.grad.data));
  for (size_t i = 0; i < whole; i += kStep) {
    Vec g = *vec(grad, (kWideGrad ? 4 : 2) * i) & zero;
    if constexpr (kWideGrad) g |= *vec(grad, 4 * i + 32) & zero;
    if (s.p == nullptr) {
      *vec(s.hi, i) += g;
      *vec(s.lo, i) += g;
    }
    for (size_t j = i; j < i + kStep; j += 8) {
      if (s.p != nullptr) *vec(s.p, j) += g;
      *vec(s.m, j) += g;
      *vec(s.v, j) += g;
    }
  }
}

template <bool kWideGrad>
#if defined(__x86_64__)
__attribute__((target("avx2")))
#endif
void pass_avx2(const Run& run, size_t whole, uint64_t zero) {
  pass<kWideGrad>(run, whole, zero);
}

void pass(const Run& run) {
  static volatile uint64_t unknown_zero = 0;
  const uint64_t zero = unknown_zero;
  const size_t whole = run.count / kStep * kStep;
  const bool wide = run.grad.type == GradType::fp32;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return wide ? pass_avx2<true>(run, whole, zero) : pass_avx2<false>(run, whole, zero);
#endif
  wide ? pass<true>(run, whole, zero) : pass<false>(run, whole, zero);
}

}  // namespace

struct AdamStream::Impl {
  LeafPool pool;
};

AdamStream::AdamStream(int threads) : impl_(new Impl{LeafPool(threads)}) {}
AdamStream::~AdamStream() = default;

void AdamStream::run(const TileUpdate& tile) const {
  SLUICE_CHECK(tile.count == 0 || (tile.grad.data != nullptr && tile.state.m != nullptr && tile.state.v != nullptr && tile.state.half == nullptr),
               "a stream is of Adam's arrays: gradient, master, m and v");
  impl_->pool.for_each((tile.count + kLeaf - 1) / kLeaf, [&](size_t leaf) {
    const size_t first = leaf * kLeaf;
    pass({.state = advance(tile.state, first),
          .grad = advance(tile.grad, first),
          .grad2 = {},
          .grad_scale = 1,
          .group = nullptr,
          .count = std::min(kLeaf, tile.count - first)});
  });
}

}  // namespace sluice::cpu_adam
