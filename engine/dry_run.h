// Counts what LibTorch's temporaries of a step will take on the device, by running each kind of block once.
#pragma once
#include <cstdint>

#include "engine/model.h"
#include "engine/step_buffers.h"
#include "gpu/device.h"

namespace sluice::engine {

struct DryRunOptions {
  bool training = true;
  uint32_t keep_graphs = 0;
  uint32_t lowest_trainable = 0;
};

// Bytes of tensors at the worst moment of a step: what stays between operations (the model's caches, kept graphs), the
// operation's own, and what the allocator holds beside. Overwrites the buffers. Error(device_memory) when even one operation does not fit.
uint64_t measure_temporaries(Model& model, const StepShape& shape, StepBuffers& buffers, gpu::Device& device,
                             gpu::Stream& compute, const DryRunOptions& options);

}  // namespace sluice::engine
