#include "engine/transfer_ops.h"

#include "base/error.h"

namespace sluice::engine {

using offload::OpKind;
using offload::Ring;

std::byte* TransferOps::host_weights(const offload::OpRun& run) const {
  for (const Ring ring : {Ring::weights_held, Ring::weights})
    if (const offload::Use* use = find_use(run.op(), ring)) return buffers_.ring(ring, run.plan->buffer(*use, run.period));
  return buffers_.weights_home(static_cast<uint32_t>(run.op().tile));
}

std::byte* TransferOps::host_state(const offload::OpRun& run) const {
  if (const offload::Use* use = find_use(run.op(), Ring::state)) return buffers_.ring(Ring::state, run.plan->buffer(*use, run.period));
  return buffers_.state_home(static_cast<uint32_t>(run.op().tile));
}

void TransferOps::copy_in(const offload::OpRun& run, gpu::Stream& stream) {
  const auto& tile = shape_.layout().tiles()[static_cast<uint32_t>(run.op().tile)];
  at::Tensor slot;
  if (shape_.resident()) {
    slot = buffers_.resident(tile.block);
  } else {
    for (const Ring ring : {Ring::device_layer, Ring::device_kept, Ring::device_big})
      if (const offload::Use* use = find_use(run.op(), ring))
        slot = buffers_.slot(ring, run.plan->buffer(*use, run.period), tile.block);
  }
  // On the stream, not here: work already enqueued may still need the old content and its version.
  stream.enqueue([slot] { StepBuffers::refilled(slot); });
  std::byte* device = static_cast<std::byte*>(slot.data_ptr()) + buffers_.offset_in_block(tile);
  const std::byte* host = host_weights(run);
  if (host != device) stream.copy_in(device, host, tile.padded * shape_.weight_bytes());
}

void TransferOps::copy_out(const offload::OpRun& run, gpu::Stream& stream) {
  const auto& tile = shape_.layout().tiles()[static_cast<uint32_t>(run.op().tile)];
  const float* device = nullptr;
  for (const Ring ring : {Ring::grad_layer, Ring::grad_big})
    if (const offload::Use* use = find_use(run.op(), ring))
      device = buffers_.gradient(ring, run.plan->buffer(*use, run.period), tile.block).data_ptr<float>() + tile.first;
  SLUICE_CHECK(device != nullptr, run.plan->name(run.index));
  const Ring ring = run.op().tied_part ? Ring::tied_gradients : Ring::gradients;
  const offload::Use* use = find_use(run.op(), ring);
  SLUICE_CHECK(use != nullptr, run.plan->name(run.index));
  stream.cast_out(buffers_.ring(ring, run.plan->buffer(*use, run.period)), device, tile.count, shape_.options().wire);
}

offload::OpHandlers::DiskRequest TransferOps::request(const offload::OpRun& run, const Slots& slots) const {
  const auto index = static_cast<uint32_t>(run.op().tile);
  const OpKind kind = run.op().kind;
  const bool write = kind == OpKind::write_weights || kind == OpKind::write_state;
  const bool weights = kind == OpKind::read_weights || kind == OpKind::write_weights;
  // Frozen tiles lie in the base file and are read without waiting for a gate: their slot must not be looked up.
  const bool frozen = !shape_.layout().tiles()[index].trainable;
  const int slot = frozen ? 0 : write ? slots.write : slots.read;
  const offload::Extent extent = store_.extent(slot, index, weights ? offload::Part::weights : offload::Part::state);
  io::IoRequest request;
  request.op = write ? io::IoOp::write : io::IoOp::read;
  request.file = extent.file;
  request.data = weights ? host_weights(run) : host_state(run);
  request.bytes = extent.bytes;
  request.offset = extent.offset;
  SLUICE_CHECK(request.data != nullptr, run.plan->name(run.index));
  return {&queue_, request};
}

}  // namespace sluice::engine
