// Forward, Loss and Backward operations: the model's math on the buffers of a step, on the compute stream.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/link.h"
#include "engine/model.h"
#include "engine/step.h"
#include "engine/step_buffers.h"
#include "offload/executor.h"

namespace sluice::engine {

// Used by one executor at a time; the work itself runs on the compute stream's thread.
class ComputeOps {
 public:
  struct Options {
    uint32_t keep_graphs = 0;      // last layers whose graph stays from forward to backward
    bool training = true;
    uint32_t lowest_trainable = 0; // block; no gradient goes below it
    // Timing only: operations take their FLOP at this rate, nothing is computed, losses and gradients are 0. 0: the real thing.
    double flops_per_s = 0;
    std::function<double(const offload::Op&)> flops;
    bool timed = false;  // the work of the stream runs on the host and can be timed there
  };
  ComputeOps(Model& model, const StepShape& shape, StepBuffers& buffers, const Options& options);

  void enqueue(const offload::OpRun& run, Step& step, gpu::Stream& stream);
  void loss_done(const offload::OpRun& run, Step& step) const;  // the operation is done: its loss is on the host
  // Seconds of the backward that went into computing layers again. Only where the stream's work runs on the host: on a GPU it is
  // merely enqueued, and this stays 0. From any thread.
  double recompute_seconds() const { return recompute_; }

 private:
  void forward(const offload::OpRun& run, Step& step);
  void loss(const offload::OpRun& run, Step& step);
  void backward(const offload::OpRun& run, Step& step);
  BlockWeights weights(const offload::OpRun& run, uint32_t block, bool with_gradient) const;
  // Input of the block that the operation takes in, or hands on.
  at::Tensor input(const offload::OpRun& run, uint32_t block) const;
  MicroBatch batch(const Step& step, uint32_t micro) const;
  LayerGraph forward_again(const offload::OpRun& run, const BlockWeights& w, const Step& step);
  bool keeps_graph(uint32_t block) const;
  LayerGraph& graph(uint32_t block, uint32_t micro);

  Model& model_;
  const StepShape& shape_;
  StepBuffers& buffers_;
  const Options options_;
  const uint32_t head_;              // block number
  base::Link emulated_;
  std::vector<LayerGraph> graphs_;   // kept: [block - first kept][micro]
  std::atomic<double> recompute_{0};
};

}  // namespace sluice::engine
