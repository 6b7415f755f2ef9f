#include "engine/comm_ops.h"

#include "base/error.h"

namespace sluice::engine {

using offload::OpKind;
using offload::Ring;

namespace {

gpu::WireType weight_type(const offload::Layout& layout) {
  switch (offload::number_type(layout.schema())) {
    case offload::NumberType::bf16: return gpu::WireType::bf16;
    case offload::NumberType::fp16: return gpu::WireType::fp16;
    case offload::NumberType::fp32: return gpu::WireType::fp32;
  }
  base::fail(base::ErrorKind::bug, "unknown schema {}", static_cast<int>(layout.schema()));
}

}  // namespace

void CommOps::enqueue(const offload::OpRun& run, gpu::Stream& stream) {
  switch (run.op().kind) {
    case OpKind::gather: return gather(run, stream);
    case OpKind::gather_updated: return gather_updated(run, stream);
    case OpKind::reduce: return reduce(run, stream);
    default: base::fail(base::ErrorKind::bug, "{} is no collective", run.plan->name(run.index));
  }
}

std::vector<comm::Part> CommOps::parts(const offload::BlockPlace& block, bool trainable) const {
  std::vector<comm::Part> all;
  for (uint32_t r = 0; r < shape_.layout().world(); ++r) {
    const auto [first, count] = block.shard(trainable, r);
    all.push_back({first, count});
  }
  return all;
}

std::byte* CommOps::ring(const offload::OpRun& run, std::initializer_list<Ring> rings) const {
  const offload::Use* use = find_use(run.op(), rings);
  return use == nullptr ? nullptr : buffers_.ring(use->ring, run.plan->buffer(*use, run.period));
}

// A device slot from the shards of all ranks; the own one was copied in, or is resident.
void CommOps::gather(const offload::OpRun& run, gpu::Stream& stream) {
  const auto b = static_cast<uint32_t>(run.op().block);
  const offload::BlockPlace& block = shape_.layout().blocks()[b];
  at::Tensor slot;
  for (const Ring kind : {Ring::device_layer, Ring::device_kept, Ring::device_big})
    if (const offload::Use* use = find_use(run.op(), kind)) slot = buffers_.slot(kind, run.plan->buffer(*use, run.period), b);
  SLUICE_CHECK(slot.defined(), run.plan->name(run.index));
  stream.enqueue([slot] { StepBuffers::refilled(slot); });
  auto* whole = static_cast<std::byte*>(slot.data_ptr());
  std::byte* shard = ring(run, {Ring::shard_layer, Ring::shard_big});
  if (shard == nullptr) shard = shape_.resident(b) ? static_cast<std::byte*>(buffers_.resident(b).data_ptr()) : whole;
  const uint64_t each = shape_.weight_bytes();
  for (const bool trainable : {true, false}) {
    if ((trainable ? block.trainable : block.frozen) == 0) continue;
    const uint64_t segment = trainable ? 0 : block.padded_trainable();
    comm_.all_gather(stream, shard + shape_.shard_start(block, trainable) * each, whole + segment * each, parts(block, trainable),
                     weight_type(shape_.layout()));
  }
}

void CommOps::gather_updated(const offload::OpRun& run, gpu::Stream& stream) {
  const auto b = static_cast<uint32_t>(run.op().block);
  const offload::BlockPlace& block = shape_.layout().blocks()[b];
  const at::Tensor resident = buffers_.resident(b);
  stream.enqueue([resident] { StepBuffers::refilled(resident); });
  auto* whole = static_cast<std::byte*>(resident.data_ptr());
  const uint64_t own = block.shard(true, shape_.options().rank).first * shape_.weight_bytes();
  comm_.all_gather(stream, whole + own, whole, parts(block, true), weight_type(shape_.layout()));
}

// Rounded once to the wire type, summed over the ranks in fp32 and in rank order, rounded once more.
void CommOps::reduce(const offload::OpRun& run, gpu::Stream& stream) {
  const auto b = static_cast<uint32_t>(run.op().block);
  const offload::BlockPlace& block = shape_.layout().blocks()[b];
  const offload::Use* use = find_use(run.op(), {Ring::grad_layer, Ring::grad_big});
  std::byte* wire = ring(run, {Ring::wire_layer, Ring::wire_big});
  SLUICE_CHECK(use != nullptr && wire != nullptr, run.plan->name(run.index));
  const gpu::WireType type = shape_.options().wire;
  stream.cast_out(wire, buffers_.gradient(use->ring, run.plan->buffer(*use, run.period), b).data_ptr<float>(), block.trainable, type);
  const std::vector<comm::Part> all = parts(block, true);
  std::byte* own = wire + all[shape_.options().rank].first * gpu::wire_bytes(type);
  comm_.reduce_scatter(stream, wire, own, all, type, type);
  if (shape_.options().zero_stage == 0) comm_.all_gather(stream, own, wire, all, type);
}

}  // namespace sluice::engine
