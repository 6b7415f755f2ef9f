// An update touches the elements of its spans and nothing else.
#include <sys/mman.h>

#include <algorithm>

#include "base/error.h"
#include "tests/cpu_adam/tile_case.h"

namespace sluice::cpu_adam {
namespace {

std::vector<StepGroup> two_groups() {
  return {default_group(), make_step_group({.lr = 5e-2, .weight_decay = 0}, 7)};
}

TEST(AdamSpans, GapsAndGuardsAreUntouched) {
  const TileCase c{.count = 2 * kLeaf + 300,
                   .shift = 1,
                   .spans = {{5, 1, 0},
                             {17, 40, 1},
                             {57, 3, 0},
                             {1000, kLeaf, 1},
                             {2 * kLeaf - 1, 2, 0},
                             {2 * kLeaf + 299, 1, 1}},
                   .groups = two_groups()};
  for (Target target : all_targets()) {
    TileData before(c), after(c);
    CpuAdam({.threads = 2, .target = target}).update(after.update());
    std::vector<bool> inside(c.count);
    for (const GroupSpan& span : c.spans) std::fill_n(inside.begin() + span.offset, span.count, true);
    for (size_t i = 0; i < c.count; ++i) {
      // A plausible gradient changes m; putting back what is inside must restore the tile with its guards.
      ASSERT_EQ(after.m[i] != before.m[i], inside[i]) << name(target) << " " << i;
      if (!inside[i]) continue;
      after.hi[i] = before.hi[i];
      after.lo[i] = before.lo[i];
      after.m[i] = before.m[i];
      after.v[i] = before.v[i];
    }
    EXPECT_TRUE(after.same_bits(before)) << name(target);
  }
}

TEST(AdamSpans, EachSpanUsesItsGroup) {
  const TileCase c{.count = kLeaf + 500,
                   .spans = {{0, 100, 1}, {100, kLeaf, 0}, {kLeaf + 131, 200, 1}},
                   .groups = two_groups()};
  TileData together(c), apart(c);
  const CpuAdam adam({.threads = 2});
  adam.update(together.update());
  for (const GroupSpan& span : c.spans) {
    TileUpdate one = apart.update();
    const std::vector<GroupSpan> spans{{span.offset, span.count, 0}};
    const std::vector<StepGroup> groups{c.groups[span.group]};
    one.spans = spans;
    one.groups = groups;
    adam.update(one);
  }
  EXPECT_TRUE(together.same_bits(apart));
}

// Elements that end, or begin, at a page that must not be touched, not even by a load.
class EdgeOfMemory {
 public:
  EdgeOfMemory() {
    void* pages = mmap(nullptr, 3 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    pages_ = static_cast<std::byte*>(pages);
    if (mprotect(pages_ + kPage, kPage, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  }
  ~EdgeOfMemory() { munmap(pages_, 3 * kPage); }
  template <class T>
  T* place(size_t count, bool at_end) {
    return reinterpret_cast<T*>(pages_ + (at_end ? 2 * kPage - count * sizeof(T) : kPage));
  }

 private:
  static constexpr size_t kPage = 4096;
  std::byte* pages_;
};

TEST(AdamSpans, NothingBeyondASpanIsRead) {
  EdgeOfMemory hi, lo, p, m, v, half, grad, grad2;
  const std::vector<StepGroup> groups = two_groups();
  for (Target target : all_targets()) {
    const CpuAdam adam({.threads = 1, .target = target});
    for (bool at_end : {true, false})
      for (size_t n = 1; n <= 130; ++n) {
        const std::vector<GroupSpan> spans{{0, n, 0}};
        const Gradient first{grad.place<uint16_t>(n, at_end), GradType::bf16},
            second{grad2.place<float>(n, at_end), GradType::fp32}, same_as_fp16{first.data, GradType::fp16};
        float* const mm = m.place<float>(n, at_end);
        float* const vv = v.place<float>(n, at_end);
        uint16_t* const hh = hi.place<uint16_t>(n, at_end);
        int16_t* const ll = lo.place<int16_t>(n, at_end);
        float* const pp = p.place<float>(n, at_end);
        adam.update({.state = {hh, ll, nullptr, mm, vv},
                     .count = n,
                     .grad = first,
                     .grad2 = second,
                     .spans = spans,
                     .groups = groups});
        adam.update({.state = {nullptr, nullptr, pp, mm, vv},
                     .count = n,
                     .grad = second,
                     .grad2 = first,
                     .spans = spans,
                     .groups = groups});
        adam.update({.state = {nullptr, nullptr, pp, mm, vv, half.place<uint16_t>(n, at_end)},
                     .count = n,
                     .grad = same_as_fp16,
                     .spans = spans,
                     .groups = groups});
        double sum = -1;
        adam.squared_norms(first, second, n, {&sum, 1});
        EXPECT_EQ(sum, 0);
        adam.join(hh, ll, pp, n);
        adam.split(pp, hh, ll, n);
      }
  }
}

TEST(AdamSpans, BadSpansAreRefusedBeforeAnythingIsWritten) {
  const std::vector<std::vector<GroupSpan>> bad{
      {{0, 101, 0}}, {{101, 0, 0}},  {{50, 10, 0}, {0, 10, 0}}, {{0, 10, 0}, {9, 10, 0}},
      {{0, 10, 2}},  {{~0ull, 2, 0}}};
  const CpuAdam adam({.threads = 1});
  for (const auto& spans : bad) {
    TileCase c{.count = 100, .groups = two_groups()};
    TileData before(c);
    c.spans = spans;
    TileData data(c);
    EXPECT_THROW(adam.update(data.update()), base::Error);
    EXPECT_TRUE(data.same_bits(before));
  }
  TileData data({.count = 100});
  TileUpdate both = data.update();
  both.state.p = data.m.data();
  EXPECT_THROW(adam.update(both), base::Error);
  TileUpdate half_of_split = data.update();
  half_of_split.state.half = data.hi.data();
  EXPECT_THROW(adam.update(half_of_split), base::Error);
  TileUpdate no_gradient = data.update();
  no_gradient.grad = {};
  EXPECT_THROW(adam.update(no_gradient), base::Error);
}

}  // namespace
}  // namespace sluice::cpu_adam
