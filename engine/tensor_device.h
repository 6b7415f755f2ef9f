// LibTorch's names for a device of gpu/ and for a layout's compute type.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "gpu/device.h"
#include "offload/layout.h"

namespace sluice::engine {

inline c10::Device tensor_device(const gpu::Device& device) {
  if (device.kind() == gpu::DeviceKind::cuda) return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device.index())};
  return {c10::DeviceType::CPU};
}

inline c10::ScalarType compute_type(offload::Schema schema) {
  switch (offload::number_type(schema)) {
    case offload::NumberType::bf16: return c10::ScalarType::BFloat16;
    case offload::NumberType::fp16: return c10::ScalarType::Half;
    case offload::NumberType::fp32: return c10::ScalarType::Float;
  }
  return c10::ScalarType::Undefined;
}
inline c10::ScalarType compute_type(const offload::Layout& layout) { return compute_type(layout.schema()); }

}  // namespace sluice::engine
