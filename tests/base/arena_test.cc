#include "base/arena.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/units.h"

namespace sluice::base {
namespace {

TEST(Arena, IsZeroAlignedToHugePagesAndRoundedUpToPages) {
  const Arena arena(3_MiB + 1, "the test");
  EXPECT_EQ(arena.size(), 3_MiB + 4_KiB);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.data()) % 2_MiB, 0u);
  EXPECT_TRUE(
      std::all_of(arena.all().begin(), arena.all().end(), [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(arena.purpose(), "the test");
}

TEST(Arena, EmptyOnesOwnNothing) {
  EXPECT_EQ(Arena().size(), 0u);
  EXPECT_EQ(Arena(0, "nothing").data(), nullptr);
}

TEST(Arena, SpansAreChecked) {
  const Arena arena(8_KiB, "the test");
  EXPECT_EQ(arena.span(4_KiB, 4_KiB).data(), arena.data() + 4_KiB);
  EXPECT_EQ(arena.span(8_KiB, 0).size(), 0u);
  EXPECT_THROW(arena.span(4_KiB, 4_KiB + 1), Error);
  EXPECT_THROW(arena.span(8_KiB + 1, 0), Error);
  EXPECT_THROW(arena.span(1, ~size_t{0}), Error);
}

TEST(Arena, MovesItsMemory) {
  Arena first(4_KiB, "first");
  std::byte* const data = first.data();
  data[7] = std::byte{42};
  Arena second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(first.data(), nullptr);
  second = Arena(8_KiB, "second");
  EXPECT_EQ(second.size(), 8_KiB);
  first = std::move(second);
  EXPECT_EQ(first.purpose(), "second");
}

TEST(Arena, TooLargeAnOneSaysPurposeNeedAndHave) {
  try {
    const Arena arena(size_t{1} << 50, "dreams");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::host_memory);
    EXPECT_THAT(error.what(),
                ::testing::AllOf(::testing::HasSubstr("dreams"), ::testing::HasSubstr("1.00 PiB")));
  }
}

TEST(AvailableHostMemory, IsPlausible) {
  EXPECT_GT(available_host_memory(), 16_MiB);
  EXPECT_LT(available_host_memory(), uint64_t{1} << 50);
}

}  // namespace
}  // namespace sluice::base
