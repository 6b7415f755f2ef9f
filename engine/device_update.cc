#include "engine/device_update.h"

#include <algorithm>

#include "base/error.h"

namespace sluice::engine {
namespace {

gpu::WireType wire_type(cpu_adam::GradType type) {
  switch (type) {
    case cpu_adam::GradType::bf16: return gpu::WireType::bf16;
    case cpu_adam::GradType::fp16: return gpu::WireType::fp16;
    case cpu_adam::GradType::fp32: return gpu::WireType::fp32;
  }
  base::fail(base::ErrorKind::bug, "unknown gradient type {}", static_cast<int>(type));
}

gpu::WireGradient wire_gradient(const cpu_adam::Gradient& grad, const cpu_adam::Gradient& grad2) {
  SLUICE_CHECK(grad2.data == nullptr || grad2.type == grad.type, "both contributions have the wire type");
  return {grad.data, grad2.data, wire_type(grad.type)};
}

gpu::AdamFactors factors_of(const cpu_adam::StepGroup& g) {
  return {.lr_decay = g.lr_decay,
          .l2 = g.l2,
          .beta1 = g.beta1,
          .one_minus_beta1 = g.one_minus_beta1,
          .beta2 = g.beta2,
          .one_minus_beta2 = g.one_minus_beta2,
          .eps = g.eps,
          .step_size = g.step_size,
          .inv_sqrt_bias2 = g.inv_sqrt_bias2};
}

const void* advance(const void* data, size_t bytes) {
  return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + bytes;
}

template <class T>
T* advance(T* field, size_t elements) {
  return field == nullptr ? nullptr : field + elements;
}

}  // namespace

void DeviceUpdate::squared_norms(const cpu_adam::Gradient& grad, const cpu_adam::Gradient& grad2, size_t count,
                                 std::span<double> leaf_sums) {
  stream_.leaf_norms(sums_, wire_gradient(grad, grad2), count);
  stream_.copy_out(reinterpret_cast<std::byte*>(host_sums_), reinterpret_cast<const std::byte*>(sums_), leaf_sums.size_bytes());
  stream_.synchronize();
  std::copy_n(host_sums_, leaf_sums.size(), leaf_sums.begin());
}

void DeviceUpdate::update(const cpu_adam::TileUpdate& tile) {
  SLUICE_CHECK(tile.hashes == nullptr, "state on the device has no hashes");
  const gpu::WireGradient grad = wire_gradient(tile.grad, tile.grad2);
  for (const cpu_adam::GroupSpan& span : tile.spans) {
    const size_t grad_bytes = span.offset * gpu::wire_bytes(grad.type);
    stream_.adam({.hi = advance(tile.state.hi, span.offset),
                   .lo = advance(tile.state.lo, span.offset),
                   .p = advance(tile.state.p, span.offset),
                   .half = advance(tile.state.half, span.offset),
                   .m = advance(tile.state.m, span.offset),
                   .v = advance(tile.state.v, span.offset),
                   .grad = {advance(grad.first, grad_bytes), advance(grad.second, grad_bytes), grad.type},
                   .grad_scale = tile.grad_scale,
                   .factors = factors_of(tile.groups[span.group]),
                   .count = span.count});
  }
  stream_.synchronize();
}

}  // namespace sluice::engine
