// Copies between host and device, and the disk requests of a step.
#pragma once
#include "engine/step_buffers.h"
#include "io/disk_queue.h"
#include "offload/executor.h"
#include "offload/store.h"

namespace sluice::engine {

// Of the store. What a step reads is known when the gate of the step before has run.
struct Slots {
  int read = 0, write = 0;
};

class TransferOps {
 public:
  TransferOps(const StepShape& shape, StepBuffers& buffers, offload::Store& store, io::DiskQueue& queue)
      : shape_(shape), buffers_(buffers), store_(store), queue_(queue) {}

  void copy_in(const offload::OpRun& run, gpu::Stream& stream);
  void copy_out(const offload::OpRun& run, gpu::Stream& stream);
  void save_boundary(const offload::OpRun& run, gpu::Stream& stream);
  void load_boundary(const offload::OpRun& run, gpu::Stream& stream);
  // Slots hold the generation that the operation's step reads, and the one it writes.
  offload::OpHandlers::DiskRequest request(const offload::OpRun& run, const Slots& slots) const;

 private:
  std::byte* host_weights(const offload::OpRun& run) const;
  std::byte* host_state(const offload::OpRun& run) const;

  const StepShape& shape_;
  StepBuffers& buffers_;
  offload::Store& store_;
  io::DiskQueue& queue_;
};

}  // namespace sluice::engine
