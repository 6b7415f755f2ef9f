// The emulated network of collectives that the host moves.
#include "engine/comm/host_comm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "emulated_ranks.h"

namespace sluice::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Each rank on a thread of its own; `body` gets 1 MiB of device memory.
void run_ranks(int world, const CommOptions& network, const std::function<void(Comm&, gpu::Stream&, std::byte*)>& body) {
  run_emulated_ranks(world, network, [&](Comm& comm, gpu::Device& device, gpu::Stream& stream, const CommOptions&) {
    const auto memory = device.allocate(1 << 20, "test");
    std::fill_n(memory->data(), 1 << 20, std::byte{});
    body(comm, stream, memory->data());
  });
}

std::vector<Part> halves() { return {{0, 1 << 18}, {1 << 18, 1 << 18}}; }  // of bf16: 512 KiB each

// Bytes flow when both ends are there: what a rank waits for the other one is no part of the transfer.
TEST(EmulatedNetwork, IsNoFasterForARankThatWaitedForAnother) {
  CommOptions network;
  network.rate = 2e6;  // 0.26 s
  run_ranks(2, network, [&](Comm& comm, gpu::Stream& stream, std::byte* memory) {
    if (comm.rank() == 1) std::this_thread::sleep_for(milliseconds(300));
    const auto start = Clock::now();
    comm.all_gather(stream, memory + comm.rank() * (1 << 19), memory, halves(), WireType::bf16);
    stream.synchronize();
    EXPECT_GE(since(start), 0.26 + (comm.rank() == 0 ? 0.25 : 0));
  });
}

// A reduction goes piece by piece; the network does not.
TEST(EmulatedNetwork, TakesItsLatencyOnceACollective) {
  CommOptions network;
  network.latency = 0.1;
  network.staging = 1 << 13;  // 64 pieces
  run_ranks(2, network, [&](Comm& comm, gpu::Stream& stream, std::byte* memory) {
    comm.control().barrier(Topic::data);
    const auto start = Clock::now();
    comm.reduce_scatter(stream, memory, memory + comm.rank() * (1 << 19), halves(), WireType::bf16, WireType::bf16);
    stream.synchronize();
    EXPECT_GE(since(start), 0.1);
    EXPECT_LT(since(start), 3.2);  // 6.4 would be one a piece
    EXPECT_GE(comm.stats().seconds, 0.1);
  });
}

TEST(EmulatedNetwork, PacesThePiecesOfAReductionTogether) {
  CommOptions network;
  network.rate = 2e6;
  network.latency = 0.05;
  network.staging = 1 << 14;
  run_ranks(2, network, [&](Comm& comm, gpu::Stream& stream, std::byte* memory) {
    const auto start = Clock::now();
    comm.reduce_scatter(stream, memory, memory + comm.rank() * (1 << 19), halves(), WireType::bf16, WireType::bf16);
    comm.all_gather(stream, memory + comm.rank() * (1 << 19), memory, halves(), WireType::bf16);
    stream.synchronize();
    EXPECT_GE(since(start), 2 * (0.05 + (1 << 19) / 2e6));
  });
}

// Nothing to move, nothing to wait for; and every rank agrees about that.
TEST(EmulatedNetwork, TakesNoTimeForEmptyCollectives) {
  CommOptions network;
  network.latency = 0.2;
  run_ranks(3, network, [&](Comm& comm, gpu::Stream& stream, std::byte* memory) {
    const std::vector<Part> empty(3), one{{}, {0, 8}, {}};
    comm.all_gather(stream, memory, memory, empty, WireType::bf16);
    comm.reduce_scatter(stream, memory, memory, empty, WireType::bf16, WireType::bf16);
    stream.synchronize();
    EXPECT_EQ(comm.stats().seconds, 0);
    comm.all_gather(stream, memory, memory, one, WireType::bf16);
    comm.reduce_scatter(stream, memory, memory, one, WireType::bf16, WireType::bf16);
    stream.synchronize();
    EXPECT_GE(comm.stats().seconds, 0.4);
  });
}

}  // namespace
}  // namespace sluice::comm
