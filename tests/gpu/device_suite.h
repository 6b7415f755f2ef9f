// What every Device must do. Link device_suite.cc and instantiate the suite with a factory.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "gpu/device.h"
#include "gpu/emulated_device.h"

namespace sluice::gpu {

struct DeviceCase {
  std::string name;
  std::function<std::unique_ptr<Device>(const EmulatedOptions&)> make;
};
inline void PrintTo(const DeviceCase& c, std::ostream* out) { *out << c.name; }

class DeviceSuite : public testing::TestWithParam<DeviceCase> {
 protected:
  std::unique_ptr<Device> make(const EmulatedOptions& options = {}) { return GetParam().make(options); }
};

}  // namespace sluice::gpu
