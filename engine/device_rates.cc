#include "engine/device_rates.h"

#include <functional>
#include <future>

#include "base/rounds.h"
#include "engine/host_rates.h"

namespace sluice::engine {
namespace {

constexpr size_t kCopyTiles = 16;
constexpr size_t kWeight = 2, kGradient = 4;  // bytes of an element: bf16 in, fp32 that is rounded on its way out
constexpr size_t kAdamTiles = 8;              // more than a GPU's caches hold

constexpr const char* kPurpose = "measuring the device";

double calls_per_second(double seconds, const std::function<void()>& call) {
  const double begin = base::monotonic_seconds(), calls = base::repeat_for(seconds, call);
  return calls / (base::monotonic_seconds() - begin);
}

}  // namespace

CopyWork::CopyWork(gpu::Device& device)
    : stream_(device.create_stream("measuring copies")),
      device_(device.allocate(kCopyTiles * kRateTile * kGradient, kPurpose)),
      host_(kCopyTiles * kRateTile * kWeight, kPurpose),
      registered_(device.register_host(host_.all())) {}

double CopyWork::bytes() { return static_cast<double>(kCopyTiles * kRateTile * kWeight); }

void CopyWork::copy_in(size_t tile) {
  const size_t first = tile * kRateTile;
  stream_->copy_in(device_->data() + first * kGradient, host_.data() + first * kWeight, kRateTile * kWeight);
}

void CopyWork::in() {
  for (size_t tile = 0; tile < kCopyTiles; ++tile) copy_in(tile);
  stream_->synchronize();
}

void CopyWork::out() {
  for (size_t tile = 0; tile < kCopyTiles; ++tile) {
    const size_t first = tile * kRateTile;
    stream_->cast_out(host_.data() + first * kWeight, reinterpret_cast<const float*>(device_->data()) + first, kRateTile, gpu::WireType::bf16);
  }
  stream_->synchronize();
}

double CopyWork::enqueue_seconds() {
  gpu::Event last = stream_->record();
  const double begin = base::monotonic_seconds();
  for (size_t tile = 0; tile < kCopyTiles; ++tile) {
    stream_->wait(last);
    copy_in(tile);
    last = stream_->record();
  }
  const double seconds = base::monotonic_seconds() - begin;
  stream_->synchronize();
  return seconds / kCopyTiles;
}

double CopyWork::latency_seconds() {
  const double begin = base::monotonic_seconds();
  stream_->copy_in(device_->data(), host_.data(), kWeight);
  stream_->record().synchronize();
  return base::monotonic_seconds() - begin;
}

double measure_both_ways(CopyWork& in, CopyWork& out, double seconds) {
  auto outward = std::async(std::launch::async, [&] { return calls_per_second(seconds, [&] { out.out(); }); });
  const double inward = calls_per_second(seconds, [&] { in.in(); });
  return CopyWork::bytes() * (inward + outward.get());
}

DeviceAdamWork::DeviceAdamWork(gpu::Device& device)
    : stream_(device.create_stream("measuring Adam")), state_(device.allocate(kAdamTiles * kRateTile * kStateBytes, kPurpose)) {}

double DeviceAdamWork::parameters() { return static_cast<double>(kAdamTiles * kRateTile); }

// What the memory holds does not matter to the time.
void DeviceAdamWork::update() {
  for (size_t tile = 0; tile < kAdamTiles; ++tile) {
    std::byte* const begin = state_->data() + tile * kRateTile * kStateBytes;
    const auto at = [&](size_t bytes_before) { return begin + kRateTile * bytes_before; };
    stream_->adam({.hi = reinterpret_cast<uint16_t*>(at(0)),
                   .lo = reinterpret_cast<int16_t*>(at(2)),
                   .m = reinterpret_cast<float*>(at(4)),
                   .v = reinterpret_cast<float*>(at(8)),
                   .grad = {at(12), nullptr, gpu::WireType::bf16},
                   .factors = {.lr_decay = 1, .l2 = 0, .beta1 = 0.9f, .one_minus_beta1 = 0.1f, .beta2 = 0.999f, .one_minus_beta2 = 0.001f,
                               .eps = 1e-8f, .step_size = 1e-5f, .inv_sqrt_bias2 = 1},
                   .count = kRateTile});
  }
  stream_->synchronize();
}

}  // namespace sluice::engine
