// split and join of every target against base/bf16.h.
#include "tests/cpu_adam/tile_case.h"

namespace sluice::cpu_adam {
namespace {

// Splits and joins `count` patterns at a time; the buffers are kept, because faulting pages in takes longer
// than the work.
class Patterns {
 public:
  explicit Patterns(size_t count) : p_(count), back_(count), hi_(count), lo_(count) {}

  // Pattern i is first + i * stride.
  void expect_exact(const CpuAdam& adam, uint64_t first, uint32_t stride) {
    for (size_t i = 0; i < p_.size(); ++i)
      p_[i] = std::bit_cast<float>(static_cast<uint32_t>(first + i * stride));
    adam.split(p_.data(), hi_.data(), lo_.data(), p_.size());
    adam.join(hi_.data(), lo_.data(), back_.data(), p_.size());
    size_t wrong = 0;
    for (size_t i = 0; i < p_.size(); ++i) {
      const base::SplitFloat expected = base::split(p_[i]);
      const uint32_t bits = std::isnan(p_[i]) ? 0x7fc00000u : std::bit_cast<uint32_t>(p_[i]);
      wrong += hi_[i] != expected.hi || lo_[i] != expected.lo || std::bit_cast<uint32_t>(back_[i]) != bits;
    }
    ASSERT_EQ(wrong, 0u) << std::hex << first;
  }

 private:
  std::vector<float> p_, back_;
  std::vector<uint16_t> hi_;
  std::vector<int16_t> lo_;
};

TEST(SplitJoin, IsExactOnAStrideOfAllPatterns) {
  Patterns patterns((1ull << 32) / 8191);
  for (Target target : all_targets())
    patterns.expect_exact(CpuAdam({.threads = 2, .target = target}), 0, 8191);
}

TEST(SplitJoin, SlowIsExactOnAllPatterns) {
  constexpr size_t kCount = 1 << 16;
  Patterns patterns(kCount);
  for (Target target : all_targets()) {
    const CpuAdam adam({.threads = 1, .target = target});
    for (uint64_t first = 0; first < (1ull << 32) && !HasFatalFailure(); first += kCount)
      patterns.expect_exact(adam, first, 1);
  }
}

TEST(SplitJoin, EveryLengthStaysInsideItsArrays) {
  for (Target target : all_targets()) {
    const CpuAdam adam({.threads = 1, .target = target});
    for (size_t count = 0; count < 70; ++count) {
      TileData a({.count = count, .shift = 1}), b({.count = count, .shift = 1});
      Guarded<float> p(count, 1), untouched(count, 1);
      adam.join(a.hi.data(), a.lo.data(), p.data(), count);
      adam.split(p.data(), a.hi.data(), a.lo.data(), count);
      EXPECT_TRUE(a.same_bits(b));
      for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ(p[i], b.master(i));
        p[i] = untouched[i];
      }
      EXPECT_TRUE(p.same_bits(untouched));
    }
  }
}

}  // namespace
}  // namespace sluice::cpu_adam
