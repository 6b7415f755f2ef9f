// Gather, GatherUpdated and Reduce operations: collectives between the ranks, on the stream of communication.
#pragma once
#include "engine/comm/comm.h"
#include "engine/step_buffers.h"
#include "offload/executor.h"

namespace sluice::engine {

class CommOps {
 public:
  // All outlive the object.
  CommOps(const StepShape& shape, StepBuffers& buffers, comm::Comm& comm) : shape_(shape), buffers_(buffers), comm_(comm) {}

  void enqueue(const offload::OpRun& run, gpu::Stream& stream);

 private:
  void gather(const offload::OpRun& run, gpu::Stream& stream);
  void gather_updated(const offload::OpRun& run, gpu::Stream& stream);
  void reduce(const offload::OpRun& run, gpu::Stream& stream);
  // The ranks' parts of a segment, in elements.
  std::vector<comm::Part> parts(const offload::BlockPlace& block, bool trainable) const;
  std::byte* ring(const offload::OpRun& run, std::initializer_list<offload::Ring> rings) const;  // null: not used

  const StepShape& shape_;
  StepBuffers& buffers_;
  comm::Comm& comm_;
};

}  // namespace sluice::engine
