#include "engine/compute_ops.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace sluice::engine {

using offload::OpKind;
using offload::Ring;

ComputeOps::ComputeOps(Model& model, const StepShape& shape, StepBuffers& buffers, const Options& options)
    : model_(model),
      shape_(shape),
      buffers_(buffers),
      options_(options),
      head_(static_cast<uint32_t>(shape.layout().blocks().size() - 1)),
      emulated_(options.flops_per_s),
      graphs_(size_t{options.keep_graphs} * shape.options().micro_batches) {
  if (!emulated_.limited()) return;
  for (const Ring ring : {Ring::grad_layer, Ring::grad_big})
    for (uint32_t i = 0; i < shape.ring_size(ring); ++i) buffers.whole(ring, i).zero_();
}

void ComputeOps::enqueue(const offload::OpRun& run, Step& step, gpu::Stream& stream) {
  const auto micro = static_cast<uint32_t>(run.op().micro);
  if (run.op().kind == OpKind::forward && run.op().block == 0) {
    const auto& ids = step.micro[micro].ids;
    std::byte* host = buffers_.host_tokens(run.period, micro);
    std::memcpy(host, ids.data(), ids.size() * sizeof(int64_t));
    stream.copy_in(static_cast<std::byte*>(buffers_.tokens(micro).data_ptr()), host, ids.size() * sizeof(int64_t));
  }
  if (emulated_.limited()) return stream.enqueue([this, flops = options_.flops(run.op())] { emulated_.pass(flops); });
  stream.enqueue([this, run, &step] {
    switch (run.op().kind) {
      case OpKind::forward: return forward(run, step);
      case OpKind::loss: return loss(run, step);
      case OpKind::backward: return backward(run, step);
      default: base::fail(base::ErrorKind::bug, "{} is no compute operation", run.plan->name(run.index));
    }
  });
  if (run.op().kind == OpKind::loss)
    stream.copy_out(reinterpret_cast<std::byte*>(buffers_.host_loss(run.period, micro)),
                    static_cast<const std::byte*>(buffers_.loss(micro).data_ptr()), sizeof(double));
}

void ComputeOps::loss_done(const offload::OpRun& run, Step& step) const {
  const auto micro = static_cast<uint32_t>(run.op().micro);
  step.losses[micro] = emulated_.limited() ? 0 : *buffers_.host_loss(run.period, micro);
}

BlockWeights ComputeOps::weights(const offload::OpRun& run, uint32_t block, bool with_gradient) const {
  // A tied loss names two blocks: the head's norm in a layer's slot, the embedding in the big one.
  const bool big = is_big(shape_.layout(), block);
  BlockWeights w;
  if (!shape_.through_slots(block)) {
    w.flat = buffers_.resident(block);
  } else {
    for (const Ring ring : {Ring::device_layer, Ring::device_kept, Ring::device_big})
      if (const offload::Use* use = find_use(run.op(), ring); use != nullptr && (ring == Ring::device_big) == big)
        w.flat = buffers_.slot(ring, run.plan->buffer(*use, run.period), block);
  }
  if (with_gradient) {
    const Ring ring = big ? Ring::grad_big : Ring::grad_layer;
    if (const offload::Use* use = find_use(run.op(), ring); use != nullptr) {
      w.grad = buffers_.gradient(ring, run.plan->buffer(*use, run.period), block);
      if (run.op().micro == 0) w.grad.zero_();
    }
  }
  return w;
}

at::Tensor ComputeOps::input(const offload::OpRun& run, uint32_t block) const {
  if (shape_.stays_on_device(block)) return buffers_.boundary(block, static_cast<uint32_t>(run.op().micro));
  const Ring ring = run.op().kind == OpKind::backward ? Ring::boundary_back : block % 2 == 0 ? Ring::boundary_even : Ring::boundary_odd;
  const offload::Use* use = find_use(run.op(), ring);
  SLUICE_CHECK(use != nullptr, run.plan->name(run.index));
  return buffers_.whole(ring, run.plan->buffer(*use, run.period));
}

MicroBatch ComputeOps::batch(const Step& step, uint32_t micro) const {
  const at::Tensor ids = buffers_.tokens(micro);
  const HostMicroBatch& host = step.micro[micro];
  MicroBatch batch{ids.select(0, 0), ids.select(0, 1), ids.select(0, 2), host.pieces, host.trained,
                   ids.select(0, 3).flatten().view(at::kInt)};
  if (options_.training) batch.random = RandomKey{.seed = step.meta.seed, .step = step.number, .micro = host.index};
  return batch;
}

bool ComputeOps::keeps_graph(uint32_t block) const {
  return options_.training && block > 0 && block < head_ && block + options_.keep_graphs >= head_ &&
         block >= options_.lowest_trainable;
}

LayerGraph& ComputeOps::graph(uint32_t block, uint32_t micro) {
  return graphs_.at(size_t{block + options_.keep_graphs - head_} * shape_.options().micro_batches + micro);
}

void ComputeOps::forward(const offload::OpRun& run, Step& step) {
  const auto block = static_cast<uint32_t>(run.op().block), micro = static_cast<uint32_t>(run.op().micro);
  const BlockWeights w = weights(run, block, false);
  at::Tensor output = input(run, block + 1);
  if (block == 0) {
    output.copy_(model_.embed(w, batch(step, micro)));
  } else if (keeps_graph(block)) {
    LayerGraph& kept = graph(block, micro);
    kept = model_.forward_graph(block - 1, w, input(run, block), batch(step, micro));
    output.copy_(kept.output.detach());
  } else {
    output.copy_(model_.forward(block - 1, w, input(run, block), batch(step, micro)));
  }
}

void ComputeOps::loss(const offload::OpRun& run, Step& step) {
  const auto micro = static_cast<uint32_t>(run.op().micro);
  const bool grads = options_.training;
  const BlockWeights norm = weights(run, head_, grads);
  const BlockWeights matrix = shape_.layout().tied() ? weights(run, 0, grads) : norm;
  const Model::LossResult result =
      model_.loss(norm, matrix, input(run, head_), batch(step, micro), step.scale * step.loss_scale.scale, grads);
  buffers_.loss(micro).copy_(result.loss_sum);
  if (grads && options_.lowest_trainable < head_) buffers_.boundary_gradient(micro).copy_(result.grad_input);
}

LayerGraph ComputeOps::forward_again(const offload::OpRun& run, const BlockWeights& w, const Step& step) {
  const auto block = static_cast<uint32_t>(run.op().block), micro = static_cast<uint32_t>(run.op().micro);
  const auto begin = std::chrono::steady_clock::now();
  LayerGraph graph = model_.forward_graph(block - 1, w, input(run, block), batch(step, micro));
  if (options_.timed) recompute_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return graph;
}

void ComputeOps::backward(const offload::OpRun& run, Step& step) {
  const auto block = static_cast<uint32_t>(run.op().block), micro = static_cast<uint32_t>(run.op().micro);
  const BlockWeights w = weights(run, block, true);
  at::Tensor gradient = buffers_.boundary_gradient(micro);
  if (block == 0) return model_.embed_backward(w, gradient, batch(step, micro));
  LayerGraph g = keeps_graph(block) ? std::exchange(graph(block, micro), {}) : forward_again(run, w, step);
  const bool below = options_.lowest_trainable < block;
  const at::Tensor input_gradient = model_.backward(block - 1, std::move(g), w, gradient, below);
  if (below) gradient.copy_(input_gradient);
}

}  // namespace sluice::engine
