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
  const std::byte* host = host_weights(run);
  const uint64_t bytes = tile.padded * shape_.weight_bytes();
  if (const offload::Use* use = find_use(run.op(), {Ring::shard_layer, Ring::shard_big}))
    return stream.copy_in(buffers_.ring(use->ring, run.plan->buffer(*use, run.period)) + buffers_.offset_in_shard(tile), host, bytes);
  at::Tensor slot;
  const bool resident = shape_.resident(tile.block);
  if (resident) {
    slot = buffers_.resident(tile.block);
  } else {
    for (const Ring ring : {Ring::device_layer, Ring::device_kept, Ring::device_big})
      if (const offload::Use* use = find_use(run.op(), ring))
        slot = buffers_.slot(ring, run.plan->buffer(*use, run.period), tile.block);
  }
  // On the stream, not here: work already enqueued may still need the old content and its version.
  stream.enqueue([slot] { StepBuffers::refilled(slot); });
  std::byte* device =
      resident ? buffers_.resident_place(tile) : static_cast<std::byte*>(slot.data_ptr()) + buffers_.offset_in_block(tile);
  if (host != device) stream.copy_in(device, host, bytes);
}

void TransferOps::save_boundary(const offload::OpRun& run, gpu::Stream& stream) {
  const auto block = static_cast<uint32_t>(run.op().block), micro = static_cast<uint32_t>(run.op().micro);
  const offload::Use* use = find_use(run.op(), {Ring::boundary_even, Ring::boundary_odd});
  const at::Tensor input = buffers_.whole(use->ring, run.plan->buffer(*use, run.period));
  stream.copy_out(buffers_.host_boundary(block, micro), static_cast<const std::byte*>(input.data_ptr()), shape_.boundary_bytes());
}

void TransferOps::load_boundary(const offload::OpRun& run, gpu::Stream& stream) {
  const auto block = static_cast<uint32_t>(run.op().block), micro = static_cast<uint32_t>(run.op().micro);
  const offload::Use* use = find_use(run.op(), Ring::boundary_back);
  const at::Tensor input = buffers_.whole(Ring::boundary_back, run.plan->buffer(*use, run.period));
  stream.enqueue([input] { StepBuffers::refilled(input); });
  stream.copy_in(static_cast<std::byte*>(input.data_ptr()), buffers_.host_boundary(block, micro), shape_.boundary_bytes());
}

void TransferOps::copy_out(const offload::OpRun& run, gpu::Stream& stream) {
  const auto& tile = shape_.layout().tiles()[static_cast<uint32_t>(run.op().tile)];
  const offload::Use* use = find_use(run.op(), {Ring::tied_gradients, Ring::gradients, Ring::device_gradients});
  SLUICE_CHECK(use != nullptr, run.plan->name(run.index));
  std::byte* to = buffers_.ring(use->ring, run.plan->buffer(*use, run.period));
  // Of several ranks it has been rounded, and summed.
  if (const offload::Use* wire = find_use(run.op(), {Ring::wire_layer, Ring::wire_big})) {
    const uint64_t each = gpu::wire_bytes(shape_.options().wire);
    const std::byte* from = buffers_.ring(wire->ring, run.plan->buffer(*wire, run.period)) + tile.first * each;
    return shape_.state_on_device(tile.block) ? stream.copy(to, from, tile.count * each) : stream.copy_out(to, from, tile.count * each);
  }
  const float* device = nullptr;
  for (const Ring filled : {Ring::grad_layer, Ring::grad_big})
    if (const offload::Use* from = find_use(run.op(), filled))
      device = buffers_.gradient(filled, run.plan->buffer(*from, run.period), tile.block).data_ptr<float>() + tile.first;
  SLUICE_CHECK(device != nullptr, run.plan->name(run.index));
  stream.cast_out(to, device, tile.count, shape_.options().wire);
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
