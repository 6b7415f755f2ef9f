// The optimizer's kernels of a Device: the bits of the CPU twins (which host_kernels_test.cc compares with cpu_adam).
#include <cmath>
#include <cstring>
#include <random>

#include "base/bf16.h"
#include "device_suite.h"
#include "gpu/host_kernels.h"
#include "random_state.h"

namespace sluice::gpu {
namespace {

// One field on host and device.
template <class T>
struct Field {
  Field(Device& device, std::vector<T> values) : expected(std::move(values)), host(device, expected.size()) {
    std::copy(expected.begin(), expected.end(), host.begin());
    buffer = device.allocate(std::max<size_t>(1, host.size_bytes()), "test");
  }
  void send(Stream& stream) { stream.copy_in(buffer->data(), host.bytes(), host.size_bytes()); }
  void fetch(Stream& stream) { stream.copy_out(host.bytes(), buffer->data(), host.size_bytes()); }
  T* device() { return reinterpret_cast<T*>(buffer->data()); }
  bool same() { return expected.empty() || std::memcmp(host.data(), expected.data(), host.size_bytes()) == 0; }
  std::vector<T> expected;
  HostArray<T> host;
  std::unique_ptr<DeviceBuffer> buffer;
};

void compare_adam(Device& device, Stream& stream, size_t count, Master master, bool tied, bool raw, WireType type, bool lion = false) {
  const bool split = master == Master::split, halves = master == Master::fp32_and_half;
  RandomState random(count, master, tied, raw, type);
  Field<uint16_t> hi(device, random.hi), half(device, random.half);
  Field<int16_t> lo(device, random.lo);
  Field<float> p(device, random.p), m(device, random.m), v(device, random.v);
  Field<std::byte> grad(device, random.grad), grad2(device, random.grad2);
  hi.send(stream), lo.send(stream), p.send(stream), m.send(stream), v.send(stream), half.send(stream), grad.send(stream), grad2.send(stream);
  AdamRun run = random.run();  // on the host arrays
  run.hi = split ? hi.expected.data() : nullptr, run.lo = split ? lo.expected.data() : nullptr;
  run.p = split ? nullptr : p.expected.data(), run.m = m.expected.data(), run.v = lion ? nullptr : v.expected.data();
  run.half = halves ? half.expected.data() : nullptr;
  run.grad.first = grad.expected.data(), run.grad.second = tied ? grad2.expected.data() : nullptr;
  adam(run);
  run.hi = split ? hi.device() : nullptr, run.lo = split ? lo.device() : nullptr;
  run.p = split ? nullptr : p.device(), run.m = m.device(), run.v = lion ? nullptr : v.device();
  run.half = halves ? half.device() : nullptr;
  run.grad.first = grad.device(), run.grad.second = tied ? grad2.device() : nullptr;
  stream.adam(run);
  hi.fetch(stream), lo.fetch(stream), p.fetch(stream), m.fetch(stream), v.fetch(stream), half.fetch(stream);
  stream.synchronize();
  EXPECT_TRUE(hi.same() && lo.same() && p.same() && m.same() && v.same() && half.same())
      << count << " elements, master " << static_cast<int>(master) << ", tied " << tied << ", raw " << raw << ", lion " << lion;
}

TEST_P(DeviceSuite, AdamHasTheBitsOfItsCpuTwin) {
  const auto device = make();
  const auto stream = device->create_stream("s");
  for (const Master master : {Master::split, Master::fp32, Master::fp32_and_half})
    for (const bool tied : {false, true})
      for (const bool raw : {false, true}) {
        compare_adam(*device, *stream, 1, master, tied, raw, WireType::bf16);
        compare_adam(*device, *stream, 100003, master, tied, raw, WireType::bf16);
        compare_adam(*device, *stream, 30011, master, tied, raw, WireType::bf16, /*lion=*/true);
        compare_adam(*device, *stream, 50021, master, tied, raw, WireType::fp16);
        compare_adam(*device, *stream, 70001, master, tied, raw, WireType::fp32);
      }
}

TEST_P(DeviceSuite, LeafNormsHaveTheBitsOfTheirCpuTwin) {
  const auto device = make();
  const auto stream = device->create_stream("s");
  for (const size_t count : {size_t{1}, size_t{63}, size_t{65}, kLeafElements, kLeafElements + 1, 5 * kLeafElements + 777})
    for (const WireType type : {WireType::bf16, WireType::fp16, WireType::fp32})
      for (const bool tied : {false, true}) {
        RandomState random(count, Master::split, tied, false, type);
        const size_t leaves = (count + kLeafElements - 1) / kLeafElements;
        Field<std::byte> grad(*device, random.grad), grad2(*device, random.grad2);
        Field<double> sums(*device, std::vector<double>(leaves, -1));
        leaf_norms(sums.expected.data(), {random.grad.data(), tied ? random.grad2.data() : nullptr, type}, count);
        grad.send(*stream), grad2.send(*stream), sums.send(*stream);
        stream->leaf_norms(sums.device(), {grad.device(), tied ? grad2.device() : nullptr, type}, count);
        sums.fetch(*stream);
        stream->synchronize();
        EXPECT_TRUE(sums.same()) << count << (tied ? " tied" : "");
      }
}

TEST_P(DeviceSuite, AGradientThatIsNotFiniteShowsInItsLeafAlone) {
  const auto device = make();
  const auto stream = device->create_stream("s");
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> values(3 * kLeafElements, 3.4e38f);  // the largest squares
    values[kLeafElements + 4711] = bad;
    Field<float> grad(*device, values);
    Field<double> sums(*device, std::vector<double>(3));
    grad.send(*stream);
    stream->leaf_norms(sums.device(), {grad.device(), nullptr, WireType::fp32}, values.size());
    sums.fetch(*stream);
    stream->synchronize();
    EXPECT_TRUE(std::isfinite(sums.host[0]) && !std::isfinite(sums.host[1]) && std::isfinite(sums.host[2]));
  }
}

float wide(const std::byte* data, WireType type, size_t i) {
  uint16_t half = 0;
  float value = 0;
  if (type == WireType::fp32) return std::memcpy(&value, data + 4 * i, 4), value;
  std::memcpy(&half, data + 2 * i, 2);
  return type == WireType::bf16 ? base::bf16_to_float(half) : math::half_to_float(half);
}

void narrow(float value, std::byte* data, WireType type, size_t i) {
  if (type == WireType::fp32) return static_cast<void>(std::memcpy(data + 4 * i, &value, 4));
  const uint16_t half = type == WireType::bf16 ? base::float_to_bf16(value) : math::to_half(value);
  std::memcpy(data + 2 * i, &half, 2);
}

// In `type`: values of many sizes, zeros of both signs, infinities and NaNs.
std::vector<std::byte> contribution(std::mt19937& random, size_t count, WireType type) {
  std::vector<std::byte> out(count * wire_bytes(type));
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < count; ++i) narrow(std::ldexp(normal(random), static_cast<int>(random() % 24) - 12), out.data(), type, i);
  for (const float special : {0.0f, -0.0f, 1e-40f, 6e-8f, 60000.0f, 3e38f, HUGE_VALF, -HUGE_VALF, std::nanf("7")})
    narrow(special, out.data(), type, random() % count);
  return out;
}

TEST_P(DeviceSuite, TheSumOverRanksIsInFp32InRankOrderRoundedOnce) {
  const auto device = make();
  const auto stream = device->create_stream("s");
  std::mt19937 random(7);
  for (const WireType type : {WireType::bf16, WireType::fp16, WireType::fp32})
    for (const WireType to_type : {WireType::bf16, WireType::fp16, WireType::fp32})
      for (const int world : {1, 2, 5})
        for (const size_t count : {size_t{1}, size_t{5000}}) {
          const size_t bytes = count * wire_bytes(type);
          const int rank = static_cast<int>(random() % static_cast<unsigned>(world));
          Field<std::byte> own(*device, contribution(random, count, type));
          std::vector<std::byte> others;
          std::vector<float> total;
          for (int r = 0; r < world; ++r) {
            const auto part = r == rank ? own.expected : contribution(random, count, type);
            if (r != rank) others.insert(others.end(), part.begin(), part.end());
            for (size_t i = 0; i < count; ++i) {
              const float value = wide(part.data(), type, i);
              if (r == 0) total.push_back(value);
              else total[i] += value;
            }
          }
          std::vector<std::byte> expected(count * wire_bytes(to_type));
          for (size_t i = 0; i < count; ++i)
            narrow(std::isnan(total[i]) ? std::bit_cast<float>(0x7fc00000u) : total[i], expected.data(), to_type, i);
          Field<std::byte> parts(*device, others), to(*device, expected);
          own.send(*stream), parts.send(*stream);
          // The result may replace this rank's own contribution.
          RankSum sum{.to = type == to_type ? own.device() : to.device(), .to_type = to_type, .own = own.device(), .others = parts.device(),
                      .stride = bytes, .rank = rank, .world = world, .type = type, .count = count};
          stream->rank_sum(sum);
          stream->copy_out(to.host.bytes(), static_cast<const std::byte*>(sum.to), expected.size());
          stream->synchronize();
          EXPECT_TRUE(to.same()) << "rank " << rank << " of " << world << ", " << count << " elements, types " << static_cast<int>(type)
                                 << " and " << static_cast<int>(to_type);
        }
}

}  // namespace
}  // namespace sluice::gpu
