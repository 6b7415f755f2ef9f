// The stream that Adam is measured against: the same bytes, nothing changed.
#include "cpu_adam/stream.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

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

}  // namespace
}  // namespace sluice::cpu_adam
