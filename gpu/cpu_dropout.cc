// Dropout whose masks are a function of key, row and column: a counter-based generator, so that neither threads nor tiles matter.
#include "gpu/cpu_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/cpu_dropout.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "gpu/cpu_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::gpu::cpu::HWY_NAMESPACE {

constexpr int64_t kChunk = 64, kCounters = 16;
using Words = hn::CappedTag<uint32_t, kCounters>;
using VW = hn::Vec<Words>;

struct Product {
  VW high, low;
};
inline Product multiply(VW a, VW b) {
  const Words d;
#if HWY_TARGET == HWY_SCALAR
  const uint64_t product = uint64_t{hn::GetLane(a)} * hn::GetLane(b);
  return {hn::Set(d, static_cast<uint32_t>(product >> 32)), hn::Set(d, static_cast<uint32_t>(product))};
#else
  const hn::RepartitionToWide<Words> wide;
  const auto even = hn::MulEven(a, b), odd = hn::MulEven(hn::Shuffle2301(a), hn::Shuffle2301(b));
  return {hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, even)))), hn::Mul(a, b)};
#endif
}

// Ten rounds on a vector of counters; the multipliers and key increments are Philox's.
void words_of(uint64_t key, uint64_t row, uint32_t chunk, uint32_t* words) {
  const Words d;
  const VW m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < kCounters; i += lanes) {
    VW c0 = hn::Iota(d, static_cast<uint32_t>(kCounters * chunk + i)), c1 = hn::Zero(d);
    VW c2 = hn::Set(d, static_cast<uint32_t>(row)), c3 = hn::Set(d, static_cast<uint32_t>(row >> 32));
    auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
      const Product p0 = multiply(c0, m0), p1 = multiply(c2, m1);
      c0 = hn::Xor(hn::Xor(p1.high, c1), hn::Set(d, k0));
      c2 = hn::Xor(hn::Xor(p0.high, c3), hn::Set(d, k1));
      c1 = p1.low;
      c3 = p0.low;
    }
    hn::StoreU(c0, d, words + i);
    hn::StoreU(c1, d, words + kCounters + i);
    hn::StoreU(c2, d, words + 2 * kCounters + i);
    hn::StoreU(c3, d, words + 3 * kCounters + i);
  }
}

// Calls body(column, count, words of these columns) over columns [begin, end) in pieces of a vector at the most.
template <class Body>
inline void for_each_masked(const Dropout& dropout, uint64_t row, int64_t begin, int64_t end, const Body& body) {
  HWY_ALIGN uint32_t words[kChunk];
  for (int64_t column = begin; column < end;) {
    const int64_t chunk = column / kChunk, stop = std::min(end, (chunk + 1) * kChunk);
    words_of(dropout.key, row, static_cast<uint32_t>(chunk), words);
    for_each_vector(column, stop, [&](int64_t i, size_t n) { body(i, n, words + (i - chunk * kChunk)); });
    column = stop;
  }
}

// value * scale where the word says so, 0 elsewhere. A NaN that is dropped is gone, as anywhere.
inline VF kept(VF value, const uint32_t* words, size_t n, const Dropout& dropout) {
  const U32 d;
  const auto w = n == hn::Lanes(d) ? hn::LoadU(d, words) : hn::BitCast(d, load_part(reinterpret_cast<const float*>(words), n));
  const auto keep = hn::Not(hn::Lt(w, hn::Set(d, dropout.threshold)));
  return hn::IfThenElseZero(hn::RebindMask(F32(), keep), hn::Mul(value, hn::Set(F32(), dropout.scale)));
}

template <class T>
void dropout_add_of(const DropoutAdd& op, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* x = op.x ? static_cast<const T*>(op.x) + row * op.cols : nullptr;
    const T* update = static_cast<const T*>(op.update) + row * op.cols;
    T* y = static_cast<T*>(op.y) + row * op.cols;
    for_each_masked(op.dropout, static_cast<uint64_t>(row), 0, op.cols, [&](int64_t i, size_t n, const uint32_t* words) {
      const VF value = rounded<T>(kept(load_any(update + i, n), words, n, op.dropout));
      store_any(x ? hn::Add(load_any(x + i, n), value) : value, y + i, n);
    });
  }
}

void attention_dropout_of(const AttentionTile& tile, const Dropout& dropout, uint64_t first_row, int64_t first_key) {
  for (int64_t r = 0; r < tile.rows; ++r) {
    float* scores = tile.scores + r * tile.stride - first_key;
    for_each_masked(dropout, first_row + static_cast<uint64_t>(r), first_key, first_key + tile.visible + r,
                    [&](int64_t i, size_t n, const uint32_t* words) {
                      store_any(kept(load_any(scores + i, n), words, n, dropout), scores + i, n);
                    });
  }
}

void dropout_add_any(const DropoutAdd& op, int64_t begin, int64_t end) {
  with_element(op.type, [&]<class T>(T) { dropout_add_of<T>(op, begin, end); });
}

}  // namespace sluice::gpu::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::gpu::cpu {
HWY_EXPORT(words_of);
HWY_EXPORT(dropout_add_any);
HWY_EXPORT(attention_dropout_of);

void dropout_words(uint64_t key, uint64_t row, uint32_t chunk, uint32_t* words) {
  HWY_DYNAMIC_DISPATCH(words_of)(key, row, chunk, words);
}
void dropout_add(const DropoutAdd& op, int64_t begin_row, int64_t end_row) {
  HWY_DYNAMIC_DISPATCH(dropout_add_any)(op, begin_row, end_row);
}
void attention_dropout(const AttentionTile& tile, const Dropout& dropout, uint64_t first_row, int64_t first_key) {
  HWY_DYNAMIC_DISPATCH(attention_dropout_of)(tile, dropout, first_row, first_key);
}
}  // namespace sluice::gpu::cpu
#endif
