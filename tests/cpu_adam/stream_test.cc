// The stream that Adam is measured against: the same bytes, nothing changed.
#include "cpu_adam/stream.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "base/error.h"

namespace sluice::cpu_adam {
namespace {

TEST(Stream, LeavesEveryArrayAsItWas) {
  const AdamStream stream(2);
  for (const size_t count : {size_t{0}, size_t{5}, size_t{16}, kLeaf, 2 * kLeaf + 37})
    for (const GradType type : {GradType::bf16, GradType::fp32})
      for (const bool split : {true, false}) {
        std::vector<uint8_t> bytes(count * 20 + 64);
        for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 131 + (i >> 8));
        const std::vector<uint8_t> before = bytes;
        uint8_t* at = bytes.data() + 4;  // not aligned to a vector
        TileState state;
        if (split) {
          state.hi = reinterpret_cast<uint16_t*>(at);
          state.lo = reinterpret_cast<int16_t*>(at + 2 * count);
        } else {
          state.p = reinterpret_cast<float*>(at);
        }
        state.m = reinterpret_cast<float*>(at + 4 * count);
        state.v = reinterpret_cast<float*>(at + 8 * count);
        stream.run({.state = state, .count = count, .grad = {at + 12 * count, type}});
        EXPECT_EQ(bytes, before) << count;
      }
}

// A page of each array, of which one may not be touched so.
[[noreturn]] void exit_of_stream(size_t forbidden, int protection) {
  constexpr size_t kPage = 4096, kCount = kPage / 4;
  auto* pages = static_cast<std::byte*>(mmap(nullptr, 5 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (pages == MAP_FAILED || mprotect(pages + forbidden * kPage, kPage, protection) != 0) _exit(90);
  const auto at = [&](size_t array) { return pages + array * kPage; };
  AdamStream(1).run({.state = {.hi = reinterpret_cast<uint16_t*>(at(0)),
                               .lo = reinterpret_cast<int16_t*>(at(1)),
                               .m = reinterpret_cast<float*>(at(2)),
                               .v = reinterpret_cast<float*>(at(3))},
                     .count = kCount,
                     .grad = {at(4), GradType::bf16}});
  _exit(0);
}

TEST(StreamDeathTest, ReadsTheGradientAndWritesAllElse) {
  const auto dies = [](int status) { return !WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 90); };  // a sanitizer exits
  for (size_t array = 0; array < 4; ++array) EXPECT_EXIT(exit_of_stream(array, PROT_READ), dies, "") << array;
  EXPECT_EXIT(exit_of_stream(4, PROT_NONE), dies, "");
  EXPECT_EXIT(exit_of_stream(4, PROT_READ), testing::ExitedWithCode(0), "");
}

TEST(Stream, IsOfAdamsArraysOnly) {
  std::vector<float> m(100);
  std::vector<uint16_t> hi(100), gradient(100);
  std::vector<int16_t> lo(100);
  const TileUpdate lion{.state = {.hi = hi.data(), .lo = lo.data(), .m = m.data()}, .count = 100, .grad = {gradient.data(), GradType::bf16}};
  EXPECT_THROW(AdamStream(1).run(lion), base::Error);
}

}  // namespace
}  // namespace sluice::cpu_adam
