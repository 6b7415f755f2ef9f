// The bits of an update depend on nothing but its inputs: not on target, alignment, length of the run, or
// threads.
#include <thread>
#include <tuple>

#include "base/error.h"
#include "base/hash.h"
#include "tests/cpu_adam/tile_case.h"

namespace sluice::cpu_adam {
namespace {

void expect_equal_targets(const TileCase& c) {
  const TileData before(c);
  TileData reference = before;
  LeafHashes reference_hashes;
  CpuAdam({.threads = 1, .target = Target::scalar}).update(reference.update(&reference_hashes));
  for (Target target : all_targets()) {
    TileData data = before;
    LeafHashes hashes;
    CpuAdam({.threads = 1, .target = target}).update(data.update(&hashes));
    ASSERT_TRUE(data.same_bits(reference))
        << name(target) << " count " << c.count << " shift " << c.shift << " split " << c.split << " half " << c.half << " lion " << c.lion << " raw "
        << c.raw_bits << " second " << c.grad2.has_value();
    ASSERT_EQ(hashes.weights, reference_hashes.weights);
    ASSERT_EQ(hashes.lo, reference_hashes.lo);
    ASSERT_EQ(hashes.p, reference_hashes.p);
    ASSERT_EQ(hashes.m, reference_hashes.m);
    ASSERT_EQ(hashes.v, reference_hashes.v);
  }
}

struct Kind {
  bool split;
  GradType grad;
  std::optional<GradType> grad2;
  bool half = false, lion = false;
};
const Kind kKinds[] = {
    {true, GradType::bf16, {}},
    {true, GradType::fp32, {}},
    {true, GradType::bf16, GradType::bf16},
    {true, GradType::fp32, GradType::bf16},
    {false, GradType::bf16, {}},
    {false, GradType::fp32, {}},
    {false, GradType::bf16, GradType::fp32},
    {false, GradType::fp32, GradType::fp32},
    {false, GradType::fp16, {}, true},
    {false, GradType::fp32, {}, true},
    {false, GradType::fp16, GradType::fp16, true},
    {true, GradType::fp16, GradType::fp32},
    {true, GradType::bf16, GradType::fp16},
    {true, GradType::bf16, {}, false, true},
    {true, GradType::fp32, GradType::bf16, false, true},
    {false, GradType::fp32, {}, false, true},
    {false, GradType::fp16, {}, true, true},
};

TEST(AdamBits, TargetsAgreeAtEveryShortLengthAndAlignment) {
  for (const Kind& kind : kKinds)
    for (size_t count = 0; count <= 35; ++count)
      for (size_t shift : {0, 1, 3}) {
        expect_equal_targets({.count = count,
                              .shift = shift,
                              .split = kind.split,
                              .half = kind.half,
                              .lion = kind.lion,
                              .grad = kind.grad,
                              .grad2 = kind.grad2,
                              .seed = count + 1});
        if (HasFatalFailure()) return;
      }
}

TEST(AdamBits, TargetsAgreeAroundALeaf) {
  for (size_t count : {kLeaf - 1, kLeaf, kLeaf + 17, 2 * kLeaf + 129})
    for (bool split : {true, false})
      for (bool lion : {false, true}) {
        expect_equal_targets({.count = count, .shift = 1, .split = split, .lion = lion, .seed = count});
        if (HasFatalFailure()) return;
      }
}

// NaN of any payload, infinities, subnormals, negative v.
TEST(AdamBits, TargetsAgreeOnArbitraryBitPatterns) {
  for (const Kind& kind : kKinds) {
    expect_equal_targets({.count = 20011,
                          .split = kind.split,
                          .half = kind.half,
                          .lion = kind.lion,
                          .grad = kind.grad,
                          .grad2 = kind.grad2,
                          .raw_bits = true,
                          .seed = 5});
    if (HasFatalFailure()) return;
  }
}

TEST(AdamBits, TargetsAgreeWithL2AndWithoutBiasCorrection) {
  const StepGroup l2 =
      make_step_group({.lr = 1e-2, .eps = 1e-6, .weight_decay = 0.05, .decoupled = false}, 3);
  const StepGroup plain = make_step_group({.lr = 1e-2, .eps = 0, .bias_correction = false}, 3);
  for (const StepGroup& group : {l2, plain}) {
    expect_equal_targets({.count = 5003, .split = true, .groups = {group}});
    expect_equal_targets({.count = 5003, .split = false, .raw_bits = true, .groups = {group}});
    if (HasFatalFailure()) return;
  }
}

TEST(AdamBits, ThreadsDoNotChangeBits) {
  const TileCase c{.count = 9 * kLeaf + 777,
                   .shift = 1,
                   .grad2 = GradType::bf16,
                   .spans = {{3, kLeaf, 0}, {kLeaf + 50, 7 * kLeaf + 1000, 0}}};
  const TileData before(c);
  TileData reference = before;
  LeafHashes reference_hashes;
  CpuAdam({.threads = 1, .target = Target::scalar}).update(reference.update(&reference_hashes));
  for (const Target target : all_targets())
    for (int threads = 0; threads <= 8; ++threads) {
      TileData data = before;
      LeafHashes hashes;
      CpuAdam({.threads = threads, .target = target}).update(data.update(&hashes));
      EXPECT_TRUE(data.same_bits(reference)) << name(target) << ", " << threads << " threads";
      EXPECT_TRUE(hashes.weights == reference_hashes.weights && hashes.lo == reference_hashes.lo && hashes.m == reference_hashes.m &&
                  hashes.v == reference_hashes.v)
          << name(target) << ", " << threads << " threads";
    }
}

TEST(AdamBits, CallsFromSeveralThreadsDoNotMeet) {
  const TileCase c{.count = 3 * kLeaf + 5};
  const TileData before(c);
  TileData reference = before;
  const CpuAdam adam({.threads = 2});
  adam.update(reference.update());
  std::vector<TileData> tiles(3, before);
  {
    std::vector<std::jthread> callers;
    for (TileData& tile : tiles) callers.emplace_back([&] { adam.update(tile.update()); });
  }
  for (const TileData& tile : tiles) EXPECT_TRUE(tile.same_bits(reference));
}

TEST(AdamBits, LeafHashesAreXxh3OfTheUpdatedElements) {
  for (const auto& [split, half, lion] :
       {std::tuple{true, false, false}, {false, false, false}, {false, true, false}, {true, false, true}, {false, true, true}}) {
    const TileCase c{.count = 2 * kLeaf + 1000,
                     .split = split,
                     .half = half,
                     .lion = lion,
                     .spans = {{128, 1000, 0}, {kLeaf + 7, kLeaf, 0}}};
    TileData data(c);
    LeafHashes hashes;
    CpuAdam({.threads = 2}).update(data.update(&hashes));
    const auto expect = [&](const std::vector<uint64_t>& got, auto& field) {
      ASSERT_EQ(got.size(), 3u);
      for (size_t leaf = 0; leaf < 3; ++leaf) {
        const size_t count = std::min(kLeaf, c.count - leaf * kLeaf);
        EXPECT_EQ(got[leaf], base::xxh3(field.data() + leaf * kLeaf, count * sizeof(field[0]))) << leaf;
      }
    };
    if (split) {
      expect(hashes.weights, data.hi);
      expect(hashes.lo, data.lo);
    } else {
      if (half) expect(hashes.p, data.p);
      half ? expect(hashes.weights, data.half) : expect(hashes.weights, data.p);
      EXPECT_TRUE(hashes.lo.empty());
    }
    expect(hashes.m, data.m);
    if (!lion) expect(hashes.v, data.v);
    EXPECT_EQ(hashes.v.empty(), lion);
  }
}

TEST(AdamBits, TheOldStateIsSavedOnTheWayAndCanBeTakenBack) {
  const std::tuple<bool, bool, bool> kinds[] = {{true, false, false}, {false, false, false}, {false, true, false}, {true, false, true}};
  for (const auto& [split, half, lion] : kinds)
    for (const size_t shift : {0, 3}) {
      const TileCase c{.count = 2 * kLeaf + 1001, .shift = shift, .split = split, .half = half, .lion = lion};
      const TileData before(c);
      TileData plain = before, data = before, saved({.count = c.count, .shift = shift, .split = split, .half = half, .lion = lion, .seed = 9});
      const CpuAdam adam({.threads = 2});
      adam.update(plain.update());
      TileUpdate update = data.update();
      update.saved = saved.update().state;
      adam.update(update);
      EXPECT_TRUE(data.same_bits(plain));
      EXPECT_TRUE(saved.same_state(before));
      adam.copy(saved.update().state, data.update().state, c.count);
      EXPECT_TRUE(data.same_bits(before));
    }
}

TEST(AdamBits, Fp32AndSplitStateHoldTheSameMaster) {
  for (const bool lion : {false, true}) {
    TileCase c{.count = 10007, .lion = lion, .seed = 3};
    TileData split(c);
    c.split = false;
    TileData plain(c);
    const CpuAdam adam({.threads = 1});
    for (int step = 0; step < 20; ++step) {
      adam.update(split.update());
      adam.update(plain.update());
    }
    for (size_t i = 0; i < c.count; ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(split.master(i)), std::bit_cast<uint32_t>(plain.p[i])) << i;
    EXPECT_TRUE(split.m.same_bits(plain.m));
    EXPECT_TRUE(split.v.same_bits(plain.v));
  }
}

// The copy has no part in the update, and is the master rounded once.
TEST(AdamBits, TheHalfIsTheRoundedMaster) {
  TileCase c{.count = 10007, .split = false, .half = true, .raw_bits = true, .seed = 3};
  TileData with(c);
  c.half = false;
  TileData without(c);
  const CpuAdam adam({.threads = 1});
  adam.update(with.update());
  adam.update(without.update());
  EXPECT_TRUE(with.p.same_bits(without.p) && with.m.same_bits(without.m) && with.v.same_bits(without.v));
  for (size_t i = 0; i < c.count; ++i) ASSERT_EQ(with.half[i], base::float_to_fp16(with.p[i])) << i;
}

TEST(AdamBits, TheSecondGradientIsAddedInFp32) {
  TileCase c{.count = 3001, .grad2 = GradType::bf16};
  TileData tied(c);
  c.grad = GradType::fp32;
  c.grad2.reset();
  TileData summed(c);
  for (size_t i = 0; i < c.count; ++i) summed.grad32[i] = tied.gradient_sum(i);
  const CpuAdam adam({.threads = 1});
  adam.update(tied.update());
  adam.update(summed.update());
  EXPECT_TRUE(tied.hi.same_bits(summed.hi));
  EXPECT_TRUE(tied.lo.same_bits(summed.lo));
  EXPECT_TRUE(tied.v.same_bits(summed.v));
}

TEST(AdamOptions, AreChecked) {
  EXPECT_THROW(CpuAdam({.threads = -1}), base::Error);
  EXPECT_TRUE(is_supported(Target::best));
  EXPECT_TRUE(is_supported(Target::scalar));
  for (Target target : {Target::avx2, Target::avx512}) {
    if (is_supported(target)) continue;
    EXPECT_THROW(CpuAdam({.target = target}), base::Error);
  }
  EXPECT_EQ(CpuAdam({.threads = 2, .target = Target::scalar}).describe(), "scalar, 2 threads");
}

}  // namespace
}  // namespace sluice::cpu_adam
