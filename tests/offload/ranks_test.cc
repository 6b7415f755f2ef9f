// Exchanges and agreement on failures, over threads and in one rank.
#include "offload/ranks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "base/error.h"
#include "offload/thread_ranks.h"

namespace sluice::offload {
namespace {

using base::ErrorKind;

// "kind: message"; empty: no error.
std::string describe(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
    return "";
  } catch (const base::Error& e) {
    return std::to_string(e.exit_code()) + ": " + e.what();
  } catch (const std::exception& e) {
    return e.what();
  }
}

TEST(Ranks, GatherGivesAllPartsInRankOrderAgainAndAgain) {
  for (const auto& error : run_thread_ranks(3, [](Ranks& ranks) {
         for (int round = 0; round < 200; ++round) {
           const auto all = ranks.gather(bytes_of(std::string(static_cast<size_t>(ranks.rank()), 'x') + std::to_string(round)), kUsualWait);
           ASSERT_EQ(all.size(), 3u);
           for (size_t r = 0; r < 3; ++r) ASSERT_EQ(text_of(all[r]), std::string(r, 'x') + std::to_string(round));
         }
       }))
    EXPECT_EQ(describe(error), "");
}

TEST(Ranks, ExchangeReturnsWhatEachGaveAndFromFirstWhatRankZeroGave) {
  for (const auto& error : run_thread_ranks(2, [](Ranks& ranks) {
         const auto all = ranks.exchange("all", [&] { return bytes_of("from " + std::to_string(ranks.rank())); });
         EXPECT_EQ(text_of(all[0]), "from 0");
         EXPECT_EQ(text_of(all[1]), "from 1");
         int calls = 0;
         EXPECT_EQ(text_of(ranks.from_first("first", [&] { return ++calls, bytes_of("zero"); })), "zero");
         EXPECT_EQ(calls, ranks.rank() == 0);
       }))
    EXPECT_EQ(describe(error), "");
}

TEST(Ranks, AFailureOfOneFailsAllTheOthersWithItsReason) {
  const auto errors = run_thread_ranks(3, [](Ranks& ranks) {
    ranks.agree("work", [&] {
      if (ranks.rank() == 1) base::fail(ErrorKind::disk, "the drive is full");
    });
  });
  EXPECT_EQ(describe(errors[0]), "9: rank 1 failed: the drive is full");
  EXPECT_EQ(describe(errors[1]), "7: the drive is full");
  EXPECT_EQ(describe(errors[2]), "9: rank 1 failed: the drive is full");
}

TEST(Ranks, AfterAnAgreedFailureTheRanksCanGoOnTogether) {
  for (const auto& error : run_thread_ranks(2, [](Ranks& ranks) {
         EXPECT_THROW(ranks.agree("bad", [&] { if (ranks.rank() == 0) throw std::runtime_error("no"); }), std::exception);
         EXPECT_EQ(ranks.exchange("good", [] { return Bytes(1); }).size(), 2u);
       }))
    EXPECT_EQ(describe(error), "");
}

TEST(Ranks, ARankThatIsGoneFailsTheOthers) {
  const auto errors = run_thread_ranks(2, [](Ranks& ranks) {
    if (ranks.rank() == 0) ranks.agree("alone", [] {});
  });
  EXPECT_EQ(describe(errors[0]), "9: rank 0 cannot go on: rank 1 has left");
  const auto thrown = run_thread_ranks(2, [](Ranks& ranks) {
    if (ranks.rank() == 1) throw std::runtime_error("killed");
    ranks.agree("alone", [] {});
  });
  EXPECT_EQ(describe(thrown[0]), "9: rank 0 cannot go on: rank 1 failed: killed");
  EXPECT_EQ(describe(thrown[1]), "killed");
}

TEST(Ranks, ExchangesThatDoNotMatchAreABug) {
  for (const auto& error : run_thread_ranks(2, [](Ranks& ranks) { ranks.agree(ranks.rank() == 0 ? "commit" : "skip", [] {}); }))
    EXPECT_NE(describe(error).find("elsewhere"), std::string::npos) << describe(error);
}

TEST(Ranks, OneRankKeepsItsOwnErrors) {
  Ranks& ranks = single_rank();
  EXPECT_EQ(ranks.world(), 1);
  EXPECT_EQ(text_of(ranks.exchange("x", [] { return bytes_of("own"); }).at(0)), "own");
  EXPECT_EQ(text_of(ranks.gather(bytes_of("own"), kUsualWait).at(0)), "own");
  try {
    ranks.on_first("x", [] { base::fail(ErrorKind::config, "no"); });
    FAIL();
  } catch (const base::Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::config);
  }
}

}  // namespace
}  // namespace sluice::offload
