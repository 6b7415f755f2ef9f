#include "apps/failure.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <new>
#include <stdexcept>

namespace sluice::apps {
namespace {

using base::Error;
using base::ErrorKind;

template <class Exception>
Error seen(const Exception& thrown) {
  try {
    throw thrown;
  } catch (...) {
    return current_error();
  }
}

// What a rank says of itself is what the others hear: both come from here.
TEST(CurrentError, KnowsTheKindsOfTheStandardLibrary) {
  EXPECT_EQ(seen(Error(ErrorKind::data, "torn")).kind(), ErrorKind::data);
  EXPECT_STREQ(seen(Error(ErrorKind::data, "torn")).what(), "torn");
  EXPECT_EQ(seen(std::bad_alloc()).kind(), ErrorKind::host_memory);
  EXPECT_THAT(seen(std::bad_alloc()).what(), testing::Not(testing::HasSubstr("bad_alloc")));
  EXPECT_EQ(seen(std::filesystem::filesystem_error("no", {})).kind(), ErrorKind::disk);
  EXPECT_EQ(seen(std::runtime_error("odd")).kind(), ErrorKind::bug);
  EXPECT_EQ(seen(PeerError(ErrorKind::model, "rank 0")).kind(), ErrorKind::peer);
}

}  // namespace
}  // namespace sluice::apps
