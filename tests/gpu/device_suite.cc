#include "device_suite.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "base/bf16.h"
#include "base/error.h"

namespace sluice::gpu {
namespace {

using base::Error;
using base::ErrorKind;
using namespace std::chrono_literals;

// Holds a stream until released: what is enqueued behind it has not run.
class Hold {
 public:
  explicit Hold(Stream& stream) {
    DeviceSuite::GetParam().run_in_order(stream, [released = released_.get_future().share()] { released.wait(); });
  }
  ~Hold() { release(); }
  void release() {
    if (!done_) released_.set_value();
    done_ = true;
  }

 private:
  std::promise<void> released_;
  bool done_ = false;
};

void fail_work() { base::fail(ErrorKind::numerics, "work failed"); }

ErrorKind kind_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.kind();
  }
  return ErrorKind::bug;
}

TEST_P(DeviceSuite, WorkOfAStreamRunsInOrder) {
  const auto device = make();
  const auto stream = device->create_stream("s");
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) in_order(*stream, [&order, i] { order.push_back(i); });
  stream->synchronize();
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[i], i);
}

TEST_P(DeviceSuite, CopiesThereAndBack) {
  const auto device = make();
  const auto stream = device->create_stream("s");
  const auto buffer = device->allocate(4000, "test");
  EXPECT_EQ(buffer->size(), 4000u);
  HostArray<int> from(*device, 1000), to(*device, 1000);
  for (int i = 0; i < 1000; ++i) from[i] = i * i;
  stream->copy_in(buffer->data(), from.bytes(), 4000);
  stream->copy_out(to.bytes(), buffer->data(), 4000);
  stream->record().synchronize();
  EXPECT_TRUE(from == to);
}

TEST_P(DeviceSuite, CopiesWithinTheDeviceInStreamOrder) {
  const auto device = make();
  const auto stream = device->create_stream("s");
  const auto a = device->allocate(4000, "test"), b = device->allocate(4000, "test");
  HostArray<int> from(*device, 1000), to(*device, 1000);
  for (int i = 0; i < 1000; ++i) from[i] = i * i;
  stream->copy_in(a->data(), from.bytes(), 4000);
  stream->copy(b->data(), a->data(), 4000);
  stream->copy(b->data(), a->data(), 0);
  stream->copy_out(to.bytes(), b->data(), 4000);
  stream->synchronize();
  EXPECT_TRUE(from == to);
}

TEST_P(DeviceSuite, CastRoundsToNearestEvenInAnyLength) {
  const auto device = make();
  const auto stream = device->create_stream("s");
  std::vector<float> values;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 10007) values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (const uint32_t bits : {0x3f808000u, 0x3f818000u, 0x7f7fffffu, 0x7f800000u, 0xff800000u, 0x7f800001u, 1u, 0x80000000u})
    values.push_back(std::bit_cast<float>(bits));
  HostArray<float> from(*device, values.size());
  std::copy(values.begin(), values.end(), from.begin());
  const auto buffer = device->allocate(from.size() * 4, "test"), rounded = device->allocate(from.size() * 2, "test");
  stream->copy_in(buffer->data(), from.bytes(), from.size() * 4);
  for (const size_t count : {from.size(), size_t{1}, size_t{31}, size_t{0}}) {
    HostArray<uint16_t> bf16(*device, from.size() + 1, 0xabcd), fp16(*device, from.size() + 1, 0xabcd), on_device(*device, from.size(), 0xabcd);
    HostArray<float> fp32(*device, from.size(), 0);
    const auto* device_floats = reinterpret_cast<const float*>(buffer->data()) + (from.size() - count);
    stream->cast_out(bf16.bytes(), device_floats, count, WireType::bf16);
    stream->cast_out(fp16.bytes(), device_floats, count, WireType::fp16);
    stream->cast_out(fp32.bytes(), device_floats, count, WireType::fp32);
    stream->cast_out(rounded->data(), device_floats, count, WireType::bf16);
    stream->copy_out(on_device.bytes(), rounded->data(), count * 2);
    stream->synchronize();
    for (size_t i = 0; i < count; ++i) {
      const float value = from[from.size() - count + i];
      ASSERT_EQ(bf16[i], base::float_to_bf16(value)) << value;
      ASSERT_EQ(fp16[i], math::to_half(value)) << value;
      ASSERT_EQ(on_device[i], bf16[i]) << value;
      ASSERT_EQ(std::bit_cast<uint32_t>(fp32[i]), std::bit_cast<uint32_t>(value));
    }
    EXPECT_EQ(bf16[count], 0xabcd);
    EXPECT_EQ(fp16[count], 0xabcd);
  }
}

TEST_P(DeviceSuite, AStreamWaitsForAnEventOfAnother) {
  const auto device = make();
  const auto a = device->create_stream("a");
  const auto b = device->create_stream("b");
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> value = 0;
    int seen = -1;
    Hold hold(*a);
    in_order(*a, [&] { value = 42; });
    b->wait(a->record());
    in_order(*b, [&] { seen = value; });
    const Event done = b->record();
    EXPECT_FALSE(done.reached());
    hold.release();
    done.synchronize();
    EXPECT_EQ(seen, 42);
  }
}

TEST_P(DeviceSuite, EventsNameTheirPointForAllCopies) {
  const auto device = make();
  const auto stream = device->create_stream("s");
  EXPECT_TRUE(Event().reached());
  Event().synchronize();
  stream->wait(Event());
  Event event = stream->record();
  event.synchronize();
  const Event copy = event;
  Hold hold(*stream);
  event = stream->record();  // a later point; the copy keeps the earlier one
  EXPECT_TRUE(copy.reached());
  EXPECT_FALSE(event.reached());
  hold.release();
  event.synchronize();
  EXPECT_TRUE(event.reached());
  event.synchronize();
}

TEST_P(DeviceSuite, TheFirstFailureSticksAndSpreadsThroughEvents) {
  const auto device = make();
  const auto a = device->create_stream("a");
  const auto b = device->create_stream("b");
  const Event before = a->record();
  a->enqueue(fail_work);
  const Event after = a->record();
  bool ran = false;
  a->enqueue([&] { ran = true; });
  a->enqueue([] { base::fail(ErrorKind::data, "a later failure"); });
  b->wait(a->record());
  b->enqueue([&] { ran = true; });
  before.synchronize();
  EXPECT_EQ(kind_of([&] { after.synchronize(); }), ErrorKind::numerics);
  EXPECT_EQ(kind_of([&] { after.synchronize(); }), ErrorKind::numerics);
  EXPECT_EQ(kind_of([&] { a->synchronize(); }), ErrorKind::numerics);
  EXPECT_EQ(kind_of([&] { b->synchronize(); }), ErrorKind::numerics);
  EXPECT_TRUE(after.reached());
  EXPECT_FALSE(ran);
}

// What ran before the failure may still use memory that goes when it is known.
TEST_P(DeviceSuite, AFailedStreamIsWaitedForAllTheSame) {
  const auto device = make();
  for (const bool by_event : {false, true}) {
    const auto stream = device->create_stream("s");
    std::atomic<bool> ran = false;
    in_order(*stream, [&] { std::this_thread::sleep_for(20ms), ran = true; });
    stream->enqueue(fail_work);
    const Event after = stream->record();
    EXPECT_EQ(kind_of([&] { by_event ? after.synchronize() : stream->synchronize(); }), ErrorKind::numerics);
    EXPECT_TRUE(ran) << (by_event ? "an event" : "the stream");
  }
}

TEST_P(DeviceSuite, DestroyingAStreamFinishesItsWork) {
  const auto device = make();
  std::atomic<int> ran = 0;
  Event last;
  {
    const auto stream = device->create_stream("s");
    for (int i = 0; i < 20; ++i) in_order(*stream, [&] { std::this_thread::sleep_for(100us), ++ran; });
    last = stream->record();
  }
  EXPECT_EQ(ran, 20);
  EXPECT_TRUE(last.reached());
}

TEST_P(DeviceSuite, TheBudgetIsExactToTheByte) {
  const auto device = make({.memory = 10000});
  auto first = device->allocate(6001, "weights");
  EXPECT_EQ(kind_of([&] { (void)device->allocate(4000, "gradients"); }), ErrorKind::device_memory);
  {
    const auto second = device->allocate(3999, "gradients");
    EXPECT_EQ(device->memory().arenas, 10000u);
    EXPECT_EQ(device->budget().used_by_purpose().at("gradients"), 3999u);
  }
  const MemoryStats stats = device->memory();
  EXPECT_EQ(stats.limit, 10000u);
  EXPECT_EQ(stats.arenas, 6001u);
  EXPECT_EQ(stats.peak, 10000u);
  first.reset();
  device->reset_peak();
  EXPECT_EQ(device->memory().peak, 0u);
  EXPECT_EQ(device->memory().arenas, 0u);
}

TEST_P(DeviceSuite, PoisonShowsAMissingWait) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the missing wait is a data race by intent";
#endif
  if (!GetParam().throttles) GTEST_SKIP() << "its link cannot be slowed, so how long the copy takes is not known";
  // 1 MB at 4 MB/s: the copy takes 0.25 s, in which a reader that does not wait must see NaN.
  const auto device = make({.poison = true, .h2d = 4e6});
  const auto copy = device->create_stream("copy");
  const auto compute = device->create_stream("compute");
  HostArray<float> weights(*device, 250000, 1.5f);
  const size_t bytes = weights.size_bytes();
  const auto buffer = device->allocate(bytes, "test");
  HostArray<float> early(*device, weights.size()), late(*device, weights.size());
  copy->copy_in(buffer->data(), weights.bytes(), bytes);
  compute->copy_out(early.bytes(), buffer->data(), bytes);
  const Event early_done = compute->record();
  compute->wait(copy->record());
  compute->copy_out(late.bytes(), buffer->data(), bytes);
  early_done.synchronize();
  compute->synchronize();
  EXPECT_TRUE(std::isnan(early.front()) && std::isnan(early.back()));
  EXPECT_TRUE(late == weights);
}

TEST_P(DeviceSuite, PoisonLeavesATargetAloneUntilItsLastReaderIsDone) {
  const auto device = make({.poison = true});
  const auto copy = device->create_stream("copy");
  const auto compute = device->create_stream("compute");
  HostArray<float> first(*device, 1000, 1), second(*device, 1000, 2), seen(*device, 1000), then(*device, 1000);
  const auto buffer = device->allocate(4000, "test");
  copy->copy_in(buffer->data(), first.bytes(), 4000);
  compute->wait(copy->record());
  Hold hold(*compute);
  compute->copy_out(seen.bytes(), buffer->data(), 4000);
  copy->wait(compute->record());
  copy->copy_in(buffer->data(), second.bytes(), 4000);
  compute->wait(copy->record());
  compute->copy_out(then.bytes(), buffer->data(), 4000);
  hold.release();
  compute->synchronize();
  EXPECT_TRUE(seen == first);
  EXPECT_TRUE(then == second);
}

TEST_P(DeviceSuite, FreshAndPoisonedMemoryIsNaN) {
  const auto device = make({.poison = true});
  const auto stream = device->create_stream("s");
  const auto buffer = device->allocate(4000, "test");
  HostArray<float> data(*device, 1000, 3), seen(*device, 1000, 0);
  stream->copy_out(seen.bytes(), buffer->data(), 4000);
  stream->synchronize();
  EXPECT_TRUE(std::isnan(seen.front()) && std::isnan(seen.back()));
  stream->copy_in(buffer->data(), data.bytes(), 4000);
  stream->synchronize();
  device->poison(buffer->data(), 2000);
  stream->copy_out(seen.bytes(), buffer->data(), 4000);
  stream->synchronize();
  EXPECT_TRUE(std::isnan(seen[0]) && std::isnan(seen[499]));
  EXPECT_EQ(seen[500], 3);
}

TEST_P(DeviceSuite, WithoutPoisonNothingIsTouched) {
  const auto device = make();
  const auto stream = device->create_stream("s");
  const auto buffer = device->allocate(4, "test");
  HostArray<float> data(*device, 1, 3), seen(*device, 1, 0);
  stream->copy_in(buffer->data(), data.bytes(), 4);
  stream->synchronize();
  device->poison(buffer->data(), 4);
  stream->copy_out(seen.bytes(), buffer->data(), 4);
  stream->synchronize();
  EXPECT_EQ(seen[0], 3);
}

TEST_P(DeviceSuite, ThrottlesMakeCopiesTakeTheirTime) {
  // 1 MB in at 50 MB/s: 20 ms; two streams share the link. 0.5 MB of bf16 out at 10 MB/s: 50 ms.
  if (!GetParam().throttles) GTEST_SKIP() << "its link cannot be slowed";
  const auto device = make({.h2d = 5e7, .d2h = 1e7});
  const auto a = device->create_stream("a");
  const auto b = device->create_stream("b");
  HostArray<std::byte> host(*device, 1000000);
  const auto buffer = device->allocate(2000000, "test");
  const auto seconds = [](const std::function<void()>& action) {
    const auto begin = std::chrono::steady_clock::now();
    action();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const double in = seconds([&] {
    a->copy_in(buffer->data(), host.bytes(), host.size());
    b->copy_in(buffer->data() + host.size(), host.bytes(), host.size());
    a->synchronize();
    b->synchronize();
  });
  EXPECT_GE(in, 0.040);
  const double out = seconds([&] {
    a->cast_out(host.bytes(), reinterpret_cast<const float*>(buffer->data()), 250000, WireType::bf16);
    a->synchronize();
  });
  EXPECT_GE(out, 0.050);
  // What stays on the device passes no link.
  const double stays = seconds([&] {
    a->cast_out(buffer->data() + 1000000, reinterpret_cast<const float*>(buffer->data()), 250000, WireType::bf16);
    a->synchronize();
  });
  EXPECT_LT(stays, 0.040);
}

TEST_P(DeviceSuite, ACopyNeedsRegisteredHostMemory) {
  const auto device = make({.opaque = true});
  const auto stream = device->create_stream("s");
  const auto buffer = device->allocate(4096, "test");
  base::Arena host(4096, "test");
  const auto copy = [&] {
    stream->copy_in(buffer->data(), host.data(), 4096);
    stream->synchronize();
  };
  {
    const auto registered = device->register_host(host.all());
    copy();
  }
  EXPECT_EQ(kind_of(copy), ErrorKind::bug);
}

TEST_P(DeviceSuite, ManyEventsAtOnceKeepTheirPoints) {
  const auto device = make();
  const auto stream = device->create_stream("s");
  std::vector<Event> events;
  for (int i = 0; i < 500; ++i) events.push_back(stream->record());
  Hold hold(*stream);
  std::vector<Event> later;
  for (int i = 0; i < 500; ++i) later.push_back(stream->record());
  for (const Event& event : events) event.synchronize();
  events.clear();  // their events may be used again from here on
  for (int i = 0; i < 500; ++i) events.push_back(stream->record());
  for (const Event& event : events) EXPECT_FALSE(event.reached());
  hold.release();
  stream->synchronize();
  for (const Event& event : later) EXPECT_TRUE(event.reached());
}

}  // namespace
}  // namespace sluice::gpu
