#include "rank_bodies.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/arena.h"
#include "base/bf16.h"
#include "base/error.h"

namespace sluice::comm {
namespace {

using base::ErrorKind;
using Bytes = std::vector<std::byte>;

constexpr WireType kTypes[] = {WireType::bf16, WireType::fp16, WireType::fp32};

void expect(bool good, const std::string& what) {
  if (!good) base::fail(ErrorKind::bug, "{}", what);
}

// What a rank holds before a collective: every rank can make that of every other.
Bytes content(int rank, uint64_t count, WireType type, unsigned seed) {
  std::mt19937 random(seed * 1000 + static_cast<unsigned>(rank));
  Bytes out(count * gpu::wire_bytes(type));
  for (uint64_t i = 0; i < count; ++i) {
    const float value = std::ldexp(static_cast<float>(random() % 2001) - 1000, static_cast<int>(random() % 12) - 10);
    const uint16_t half = type == WireType::bf16 ? base::float_to_bf16(value) : gpu::math::to_half(value);
    if (type == WireType::fp32) std::memcpy(out.data() + 4 * i, &value, 4);
    else std::memcpy(out.data() + 2 * i, &half, 2);
  }
  return out;
}

std::vector<std::vector<Part>> shapes(int world) {
  std::vector<std::vector<Part>> all;
  const auto make = [&](const std::function<uint64_t(uint64_t)>& count, uint64_t gap) {
    std::vector<Part> parts;
    uint64_t first = gap;
    for (int r = 0; r < world; ++r) {
      parts.push_back({first, count(static_cast<uint64_t>(r))});
      first += parts.back().count + gap;
    }
    all.push_back(parts);
  };
  make([](uint64_t) { return 700; }, 0);                          // even
  make([](uint64_t r) { return 1 + 997 * r; }, 3);                // uneven, with gaps
  make([](uint64_t r) { return r % 2 == 0 ? 0 : 1301; }, 0);      // some empty
  make([&](uint64_t r) { return r + 1 == static_cast<uint64_t>(world) ? 5000 : 0; }, 1);  // one rank has all: a broadcast
  make([](uint64_t) { return 0; }, 0);                            // nothing at all
  std::vector<Part> backwards = all[1];
  std::reverse(backwards.begin(), backwards.end());
  all.push_back(backwards);
  return all;
}

uint64_t extent(const std::vector<Part>& parts) {
  uint64_t end = 0;
  for (const Part& p : parts) end = std::max(end, p.first + p.count);
  return end + 5;
}

// Device memory with a host side to fill and read it by.
struct Buffer {
  Buffer(RankContext& c, const Bytes& bytes)
      : stream(c.stream),
        size(bytes.size()),
        host(std::max<size_t>(1, size), "test"),
        registered(c.device.register_host(host.all())),
        memory(c.device.allocate(std::max<size_t>(1, size), "test")) {
    if (size > 0) std::memcpy(host.data(), bytes.data(), size);
    stream.copy_in(data(), host.data(), size);
    stream.synchronize();
  }
  std::byte* data() const { return memory->data(); }
  Bytes bytes() const {
    stream.copy_out(host.data(), data(), size);
    stream.synchronize();
    return {host.data(), host.data() + size};
  }
  gpu::Stream& stream;
  const size_t size;
  const base::Arena host;
  const std::unique_ptr<gpu::HostRegistration> registered;
  const std::unique_ptr<gpu::DeviceBuffer> memory;
};

void check_gather(RankContext& c, const std::vector<Part>& parts, WireType type, bool in_place) {
  const uint64_t width = gpu::wire_bytes(type), count = extent(parts);
  const Part own = parts[static_cast<size_t>(c.rank())];
  const Bytes mine = content(c.rank(), count, type, 1);
  const auto begin = mine.begin() + static_cast<long>(own.first * width), end = begin + static_cast<long>(own.count * width);
  Bytes start = mine;
  if (!in_place) std::fill_n(start.begin() + (begin - mine.begin()), own.count * width, std::byte{0xee});
  const Buffer whole(c, start), shard(c, Bytes(begin, end));
  c.comm.all_gather(c.stream, in_place ? whole.data() + own.first * width : shard.data(), whole.data(), parts, type);
  c.stream.synchronize();
  Bytes expected = mine;
  for (int r = 0; r < c.world(); ++r) {
    const Part p = parts[static_cast<size_t>(r)];
    const Bytes theirs = content(r, count, type, 1);
    std::copy_n(theirs.begin() + static_cast<long>(p.first * width), p.count * width, expected.begin() + static_cast<long>(p.first * width));
  }
  expect(whole.bytes() == expected, "a gather gives something else");
}

void check_reduce(RankContext& c, const std::vector<Part>& parts, WireType type, WireType own_type, bool in_place) {
  const uint64_t width = gpu::wire_bytes(type), count = extent(parts);
  const Part own = parts[static_cast<size_t>(c.rank())];
  const Bytes mine = content(c.rank(), count, type, 2);
  const Buffer whole(c, mine), result(c, Bytes(own.count * gpu::wire_bytes(own_type)));
  std::byte* to = in_place ? whole.data() + own.first * width : result.data();
  c.comm.reduce_scatter(c.stream, whole.data(), to, parts, type, own_type);
  c.stream.synchronize();
  std::vector<Bytes> all;
  for (int r = 0; r < c.world(); ++r) all.push_back(content(r, count, type, 2));
  Bytes rest = whole.bytes();
  const Bytes sums = in_place ? Bytes(rest.begin() + static_cast<long>(own.first * width), rest.begin() + static_cast<long>((own.first + own.count) * width))
                              : result.bytes();
  for (uint64_t i = 0; i < own.count; ++i) {
    float total = gpu::math::load(all[0].data(), type, own.first + i);
    for (int r = 1; r < c.world(); ++r) total += gpu::math::load(all[static_cast<size_t>(r)].data(), type, own.first + i);
    const uint16_t half = own_type == WireType::bf16 ? base::float_to_bf16(total) : gpu::math::to_half(total);
    const bool same = own_type == WireType::fp32 ? std::memcmp(sums.data() + 4 * i, &total, 4) == 0 : std::memcmp(sums.data() + 2 * i, &half, 2) == 0;
    expect(same, fmt::format("element {} of a reduction is something else", i));
  }
  if (in_place) std::copy_n(mine.begin() + static_cast<long>(own.first * width), own.count * width, rest.begin() + static_cast<long>(own.first * width));
  expect(rest == mine, "a reduction has written where it may only read");
}

// Payload by the formula: a gather gives the own shard to all others; a reduction gives all others their parts.
void check_stats(RankContext& c, const CommStats& before, const std::vector<Part>& parts, WireType type) {
  const CommStats now = c.comm.stats();
  uint64_t others = 0;
  for (int r = 0; r < c.world(); ++r)
    if (r != c.rank()) others += parts[static_cast<size_t>(r)].count * gpu::wire_bytes(type);
  const uint64_t own = parts[static_cast<size_t>(c.rank())].count * gpu::wire_bytes(type) * static_cast<uint64_t>(c.world() - 1);
  expect(now.gathers == before.gathers + 1 && now.reductions == before.reductions + 1, "collectives are not counted");
  expect(now.gather_sent - before.gather_sent == own && now.gather_received - before.gather_received == others, "bytes of a gather");
  expect(now.reduce_sent - before.reduce_sent == others && now.reduce_received - before.reduce_received == own, "bytes of a reduction");
}

void collectives(RankContext& c) {
  for (const auto& parts : shapes(c.world()))
    for (const WireType type : kTypes) {
      for (const bool in_place : {false, true}) check_gather(c, parts, type, in_place);
      for (const WireType own_type : kTypes) check_reduce(c, parts, type, own_type, false);
      check_reduce(c, parts, type, type, true);
      const CommStats before = c.comm.stats();
      check_gather(c, parts, type, false);
      check_reduce(c, parts, type, type, false);
      check_stats(c, before, parts, type);
    }
  c.comm.control().close();
}

void control(RankContext& c) {
  Control& channel = c.comm.control();
  const auto count = static_cast<size_t>(c.world());
  // Two threads exchange at once, in whatever order.
  const auto words = [&](Topic topic, uint64_t factor) {
    for (uint64_t round = 0; round < 50; ++round) {
      const auto all = channel.gather(topic, factor * round + static_cast<uint64_t>(c.rank()));
      expect(all.size() == count, "one value for each rank");
      for (size_t r = 0; r < count; ++r) expect(all[r] == factor * round + r, "a value of another rank or round");
    }
  };
  std::exception_ptr error;
  std::thread second([&] {
    try {
      words(Topic::commit, 1000);
    } catch (...) {
      error = std::current_exception();
    }
  });
  words(Topic::step, 7000);
  second.join();
  if (error) std::rethrow_exception(error);
  // Sizes differ, and are large: leaf sums.
  std::vector<double> sums(static_cast<size_t>(c.rank()) * 100000, c.rank() + 0.5);
  const auto all = channel.gather(Topic::step, std::span<const double>(sums));
  for (size_t r = 0; r < count; ++r)
    expect(all[r] == std::vector<double>(r * 100000, static_cast<double>(r) + 0.5), "leaf sums of a rank");
  const auto names = channel.gather(Topic::start, std::string(static_cast<size_t>(c.rank()), 'x'));
  for (size_t r = 0; r < count; ++r) expect(names[r].size() == r, "texts");
  channel.barrier(Topic::evaluate);
  channel.close();
}

// Small gathers and reductions for `rounds`, or until somebody fails.
void work(RankContext& c, int rounds = 1 << 30) {
  const auto parts = shapes(c.world())[0];
  const Buffer whole(c, content(c.rank(), extent(parts), WireType::fp32, 3));
  std::byte* own = whole.data() + 4 * parts[static_cast<size_t>(c.rank())].first;
  for (int round = 0; round < rounds; ++round) {
    c.comm.reduce_scatter(c.stream, whole.data(), own, parts, WireType::fp32, WireType::fp32);
    c.comm.all_gather(c.stream, own, whole.data(), parts, WireType::fp32);
    c.stream.synchronize();
  }
}

bool culprit(const RankContext& c) { return c.rank() == c.world() - 1; }

void late(RankContext& c) {
  work(c, culprit(c) ? 5 : 1 << 30);
  std::this_thread::sleep_for(std::chrono::duration<double>(kDeadline * 2));
  work(c);
}

void dead(RankContext& c) {
  work(c, culprit(c) ? 5 : 1 << 30);
  kill(getpid(), SIGKILL);
}

void failed(RankContext& c) {
  work(c, culprit(c) ? 5 : 1 << 30);
  c.comm.control().fail(ErrorKind::disk, "/data: no space left on the device");
  base::fail(ErrorKind::disk, "/data: no space left on the device");
}

void deaf(RankContext& c) {
  c.comm.control().barrier(Topic::step);
  if (culprit(c)) base::fail(ErrorKind::disk, "/data: no space left on the device");
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

void left(RankContext& c) { work(c, culprit(c) ? 5 : 1 << 30); }

void late_control(RankContext& c) {
  if (culprit(c)) std::this_thread::sleep_for(std::chrono::duration<double>(kDeadline * 2));
  for (;;) c.comm.control().barrier(Topic::step);
}

void patient(RankContext& c) {
  if (culprit(c)) std::this_thread::sleep_for(std::chrono::duration<double>(kDeadline * 2));
  c.comm.control().barrier(Topic::start, kDeadline * 100);
  c.comm.control().close();
}

void mismatch(RankContext& c) {
  auto parts = shapes(c.world())[0];
  if (culprit(c)) parts[0].count -= 10;
  const Buffer whole(c, content(c.rank(), extent(parts), WireType::fp32, 3));
  for (;;) {
    c.comm.all_gather(c.stream, whole.data() + 4 * parts[static_cast<size_t>(c.rank())].first, whole.data(), parts, WireType::fp32);
    c.stream.synchronize();
  }
}

}  // namespace

const std::map<std::string, std::function<void(RankContext&)>>& rank_bodies() {
  static const std::map<std::string, std::function<void(RankContext&)>> bodies{
      {"collectives", collectives}, {"control", control},           {"idle", [](RankContext& c) { work(c); }},
      {"late", late},               {"dead", dead},                 {"failed", failed},
      {"left", left},               {"late_control", late_control}, {"patient", patient},
      {"mismatch", mismatch},       {"deaf", deaf}};
  return bodies;
}

Outcome run_rank(const MakeDevice& make_device, const MakeComm& make_comm, const std::string& body) {
  try {
    const auto device = make_device();
    const auto comm = make_comm({.device = device.get(), .staging = 1024});  // many pieces
    const auto stream = device->create_stream("comm");
    RankContext context{*comm, *device, *stream};
    rank_bodies().at(body)(context);
    return {};
  } catch (const base::Error& error) {
    return {error.exit_code(), error.what()};
  } catch (const std::exception& error) {
    return {1, error.what()};
  }
}

}  // namespace sluice::comm
