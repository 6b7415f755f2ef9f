#include <xxhash.h>
#if defined(__x86_64__)
#define XXH_DISPATCH_DISABLE_REPLACE
#include <xxh_x86dispatch.h>
#endif

#include <algorithm>

#include "base/error.h"
#include "cpu_adam/adam.h"
#include "cpu_adam/kernels.h"
#include "cpu_adam/leaf_pool.h"
#include "cpu_adam/stream_copy.h"

namespace sluice::cpu_adam {
namespace {

const Kernels* find_kernels(Target target) {
  switch (target) {
    case Target::scalar:
      return &scalar_kernels();
    case Target::avx2:
      return avx2_kernels();
    case Target::avx512:
      return avx512_kernels();
    case Target::best:
      break;
  }
  if (const Kernels* kernels = avx512_kernels()) return kernels;
  if (const Kernels* kernels = avx2_kernels()) return kernels;
  return &scalar_kernels();
}

// The library's vector version: base::xxh3 is its SSE2 one, which reads slower than Adam writes.
uint64_t hash_elements(const void* data, size_t bytes) {
#if defined(__x86_64__)
  return XXH3_64bits_dispatch(data, bytes);
#else
  return XXH3_64bits(data, bytes);
#endif
}

constexpr uint64_t kSaved = 4096;  // elements that are copied before they are updated: some 50 KiB, which stay in the second cache

size_t leaf_count(size_t count) {
  return (count + kLeaf - 1) / kLeaf;
}

bool same_arrays(const TileState& a, const TileState& b) {
  const auto both = [](const void* x, const void* y) { return (x == nullptr) == (y == nullptr); };
  return both(a.hi, b.hi) && both(a.lo, b.lo) && both(a.p, b.p) && both(a.m, b.m) && both(a.v, b.v) && both(a.half, b.half);
}

void check(const TileUpdate& tile) {
  const TileState& s = tile.state;
  const bool split = s.hi != nullptr && s.lo != nullptr && s.p == nullptr && s.half == nullptr;
  const bool fp32 = s.hi == nullptr && s.lo == nullptr && s.p != nullptr;
  SLUICE_CHECK(tile.count == 0 || ((split || fp32) && s.m != nullptr),
               "tile state: hi and lo, or p with or without half; and m, with or without v");
  SLUICE_CHECK(tile.saved.m == nullptr || same_arrays(tile.state, tile.saved), "the saved tile has other arrays");
  SLUICE_CHECK(tile.spans.empty() || tile.grad.data != nullptr, "tile without a gradient");
  uint64_t end = 0;
  for (const GroupSpan& span : tile.spans) {
    SLUICE_CHECK(span.offset >= end, "group spans overlap or are not sorted");
    SLUICE_CHECK(span.offset <= tile.count && span.count <= tile.count - span.offset,
                 "group span beyond the tile");
    SLUICE_CHECK(span.group < tile.groups.size(), "group span of an unknown group");
    end = span.offset + span.count;
  }
}

void resize(LeafHashes* hashes, const TileUpdate& tile) {
  const size_t leaves = leaf_count(tile.count);
  hashes->weights.resize(leaves);
  hashes->lo.resize(tile.state.lo == nullptr ? 0 : leaves);
  hashes->p.resize(tile.state.half == nullptr ? 0 : leaves);
  hashes->m.resize(leaves);
  hashes->v.resize(tile.state.v == nullptr ? 0 : leaves);
}

// Right after the leaf's update: its 768 KiB (fp16: 896 KiB) are still in L2.
void hash_leaf(const TileUpdate& tile, size_t leaf, size_t count) {
  const TileState s = advance(tile.state, leaf * kLeaf);
  const auto hash = [count](const auto* field) { return hash_elements(field, count * sizeof(*field)); };
  LeafHashes& out = *tile.hashes;
  if (s.half != nullptr) {
    out.weights[leaf] = hash(s.half);
    out.p[leaf] = hash(s.p);
  } else {
    out.weights[leaf] = s.p != nullptr ? hash(s.p) : hash(s.hi);
  }
  if (s.lo != nullptr) out.lo[leaf] = hash(s.lo);
  out.m[leaf] = hash(s.m);
  if (s.v != nullptr) out.v[leaf] = hash(s.v);
}

void copy_range(const TileState& from, const TileState& to, size_t first, size_t count) {
  const TileState a = advance(from, first), b = advance(to, first);
  const auto copy = [count](const auto* source, auto* target) {
    if (source != nullptr) stream_copy(source, target, count * sizeof(*source));
  };
  copy(a.hi, b.hi);
  copy(a.lo, b.lo);
  copy(a.p, b.p);
  copy(a.m, b.m);
  copy(a.v, b.v);
  copy(a.half, b.half);
}

void update_range(const Kernels& kernels, const TileUpdate& tile, uint64_t begin, uint64_t end) {
  auto span = std::partition_point(tile.spans.begin(), tile.spans.end(),
                                   [begin](const GroupSpan& s) { return s.offset + s.count <= begin; });
  for (; span != tile.spans.end() && span->offset < end; ++span) {
    const uint64_t first = std::max(span->offset, begin), last = std::min(span->offset + span->count, end);
    kernels.update({.state = advance(tile.state, first),
                    .grad = advance(tile.grad, first),
                    .grad2 = advance(tile.grad2, first),
                    .grad_scale = tile.grad_scale,
                    .group = &tile.groups[span->group],
                    .count = last - first});
  }
}

void update_leaf(const Kernels& kernels, const TileUpdate& tile, size_t leaf) {
  const uint64_t begin = leaf * kLeaf, end = std::min<uint64_t>(tile.count, begin + kLeaf);
  if (tile.saved.m == nullptr) {
    update_range(kernels, tile, begin, end);
  } else {
    for (uint64_t at = begin; at < end; at += kSaved) {  // the update finds in the cache what the copy has read
      copy_range(tile.state, tile.saved, at, std::min(kSaved, end - at));
      update_range(kernels, tile, at, std::min(end, at + kSaved));
    }
  }
  if (tile.hashes != nullptr) hash_leaf(tile, leaf, end - begin);
}

}  // namespace

bool is_supported(Target target) {
  return find_kernels(target) != nullptr;
}

struct CpuAdam::Impl {
  const Kernels& kernels;
  LeafPool pool;
};

CpuAdam::CpuAdam(const Options& options) {
  const Kernels* kernels = find_kernels(options.target);
  if (kernels == nullptr)
    base::fail(base::ErrorKind::config, "Adam: this CPU has no {}. Choose target best",
               options.target == Target::avx2 ? "AVX2" : "AVX-512");
  if (options.threads < 0)
    base::fail(base::ErrorKind::config, "Adam: {} threads; need at least 1, or 0 for all", options.threads);
  impl_.reset(new Impl{*kernels, LeafPool(options.threads)});
}

CpuAdam::~CpuAdam() = default;

void CpuAdam::update(const TileUpdate& tile) const {
  check(tile);
  if (tile.hashes != nullptr) resize(tile.hashes, tile);
  impl_->pool.for_each(leaf_count(tile.count), [&](size_t leaf) { update_leaf(impl_->kernels, tile, leaf); });
}

void CpuAdam::copy(const TileState& from, const TileState& to, size_t count) const {
  SLUICE_CHECK(same_arrays(from, to), "the tiles have different arrays");
  impl_->pool.for_each(leaf_count(count), [&](size_t leaf) { copy_range(from, to, leaf * kLeaf, std::min(kLeaf, count - leaf * kLeaf)); });
}

void CpuAdam::squared_norms(const Gradient& grad, const Gradient& grad2, size_t count,
                            std::span<double> leaf_sums) const {
  SLUICE_CHECK(count == 0 || grad.data != nullptr, "norm without a gradient");
  SLUICE_CHECK(leaf_sums.size() == leaf_count(count), "one sum per leaf");
  impl_->pool.for_each(leaf_sums.size(), [&](size_t leaf) {
    const size_t first = leaf * kLeaf;
    leaf_sums[leaf] = impl_->kernels.squared_norm(advance(grad, first), advance(grad2, first),
                                                  std::min(kLeaf, count - first));
  });
}

void CpuAdam::split(const float* p, uint16_t* hi, int16_t* lo, size_t count) const {
  impl_->pool.for_each(leaf_count(count), [&](size_t leaf) {
    const size_t first = leaf * kLeaf;
    impl_->kernels.split(p + first, hi + first, lo + first, std::min(kLeaf, count - first));
  });
}

void CpuAdam::join(const uint16_t* hi, const int16_t* lo, float* p, size_t count) const {
  impl_->pool.for_each(leaf_count(count), [&](size_t leaf) {
    const size_t first = leaf * kLeaf;
    impl_->kernels.join(hi + first, lo + first, p + first, std::min(kLeaf, count - first));
  });
}

std::string CpuAdam::describe() const {
  const int threads = impl_->pool.threads();
  const size_t nodes = impl_->pool.nodes();
  return fmt::format("{}, {} thread{}{}", impl_->kernels.name, threads, threads == 1 ? "" : "s", nodes > 1 ? fmt::format(" on {} NUMA nodes", nodes) : "");
}

}  // namespace sluice::cpu_adam
