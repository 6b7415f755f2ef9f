#include "engine/comm/comm_rates.h"

#include <gtest/gtest.h>

#include "emulated_ranks.h"

namespace sluice::comm {
namespace {

std::vector<CommRates> measure(int world, const CommOptions& network, uint64_t bytes) {
  std::vector<CommRates> rates(static_cast<size_t>(world));
  run_emulated_ranks(world, network, [&](Comm& comm, gpu::Device& device, gpu::Stream& stream, const CommOptions& options) {
    rates[static_cast<size_t>(comm.rank())] = measure_comm(comm, device, stream, bytes, 0.1);
    EXPECT_EQ(device.budget().used(), staging_bytes(world, options.staging));  // nothing else is kept
  });
  return rates;
}

TEST(CommRates, AreTheSameOnAllRanks) {
  for (const int world : {2, 3}) {
    const auto rates = measure(world, {}, 1 << 20);
    for (const CommRates& r : rates) {
      EXPECT_GT(r.gather, 0);
      EXPECT_GT(r.reduce, 0);
      EXPECT_GT(r.latency, 0);
      EXPECT_EQ(r.gather, rates[0].gather);
      EXPECT_EQ(r.reduce, rates[0].reduce);
      EXPECT_EQ(r.latency, rates[0].latency);
    }
  }
}

// How much slower depends on what else the machine does.
TEST(CommRates, AreNeverBetterThanTheEmulatedNetwork) {
  CommOptions network;
  network.rate = 50e6;
  network.latency = 0.01;
  const CommRates rates = measure(2, network, 4 << 20)[0];
  EXPECT_GE(rates.latency, 0.01);
  for (const double rate : {rates.gather, rates.reduce}) {
    EXPECT_LT(rate, 50e6);
    EXPECT_GT(rate, 0);
  }
}

}  // namespace
}  // namespace sluice::comm
