// What every Device must do. Link device_suite.cc and device_kernels_suite.cc and instantiate the suite with a factory.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "base/arena.h"
#include "gpu/device.h"
#include "gpu/emulated_device.h"

namespace sluice::gpu {

struct DeviceCase {
  std::string name;
  std::function<std::unique_ptr<Device>(const EmulatedOptions&)> make;
  // Puts host work into the stream's order. (Stream::enqueue of a GPU runs it at once.)
  std::function<void(Stream&, std::function<void()>)> run_in_order = [](Stream& stream, std::function<void()> work) {
    stream.enqueue(std::move(work));
  };
  bool throttles = true;       // links can be slowed
  std::string skip;            // why the device is not here; empty: it is
};
inline void PrintTo(const DeviceCase& c, std::ostream* out) { *out << c.name; }

class DeviceSuite : public testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override {
    if (!GetParam().skip.empty()) GTEST_SKIP() << GetParam().skip;
  }
  std::unique_ptr<Device> make(const EmulatedOptions& options = {}) { return GetParam().make(options); }
  void in_order(Stream& stream, std::function<void()> work) { GetParam().run_in_order(stream, std::move(work)); }
};

// Values in host memory that a device may copy.
template <class T>
class HostArray {
 public:
  HostArray(Device& device, size_t count, T value = {})
      : count_(count), arena_(std::max<size_t>(1, count) * sizeof(T), "test"), registered_(device.register_host(arena_.all())) {
    std::fill_n(data(), count, value);
  }
  T* data() { return reinterpret_cast<T*>(arena_.data()); }
  std::byte* bytes() { return arena_.data(); }
  size_t size() const { return count_; }
  size_t size_bytes() const { return count_ * sizeof(T); }
  T& operator[](size_t i) { return data()[i]; }
  T& front() { return data()[0]; }
  T& back() { return data()[count_ - 1]; }
  T* begin() { return data(); }
  T* end() { return data() + count_; }
  bool operator==(HostArray& other) { return std::equal(begin(), end(), other.begin(), other.end()); }

 private:
  const size_t count_;
  base::Arena arena_;
  std::unique_ptr<HostRegistration> registered_;
};

}  // namespace sluice::gpu
