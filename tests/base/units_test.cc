#include "base/units.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace sluice::base {
namespace {

TEST(Units, ParsesBinaryAndDecimalSuffixes) {
  EXPECT_EQ(parse_bytes("1048576"), 1_MiB);
  EXPECT_EQ(parse_bytes("8GiB"), 8_GiB);
  EXPECT_EQ(parse_bytes("1.5 MiB"), 1536_KiB);
  EXPECT_EQ(parse_bytes("500MB"), 500000000u);
  EXPECT_EQ(parse_bytes("4k"), 4096u);
}

TEST(Units, RefusesWhatIsNotAByteCount) {
  for (const char* text : {"", "GiB", "-1", "1.3B", "12 parsecs", "1e400", "99999999TiB", "nan"})
    EXPECT_THROW(parse_bytes(text), Error) << text;
}

TEST(Units, FormatsForPeople) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1536_MiB), "1.50 GiB");
  EXPECT_EQ(format_bytes(20_MiB), "20.0 MiB");
  EXPECT_EQ(format_duration(125), "2 min 05 s");
  EXPECT_EQ(format_duration(4320), "1 h 12 min");
}

}  // namespace
}  // namespace sluice::base
