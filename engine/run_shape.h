// What plans and arenas of a run follow from its options: shared by the trainer and `sluice plan`.
// LibTorch-free.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "engine/step_shape.h"
#include "engine/trainer.h"
#include "offload/plan_builder.h"

namespace sluice::engine {

// TrainerOptions::plan, and what follows from the other options.
offload::PlanOptions train_plan_options(const TrainerOptions& options, const offload::Layout& layout, int64_t hidden);
StepOptions step_options(const TrainerOptions& options, const offload::Layout& layout, int64_t hidden, const offload::PlanOptions& plan);

// Several ranks: device memory in which a rank receives what another one adds to a reduction (comm::CommOptions::staging): its share of the bucket,
// or of the largest block where that is less.
uint64_t comm_staging(const TrainerOptions& options, const offload::Layout& layout);

// The largest of plans that share their buffers.
std::array<uint32_t, offload::kRings> ring_sizes(const std::vector<const offload::Plan*>& plans);

// Bytes that a commit of the state in memory writes for this rank; 0 where every step commits.
uint64_t commit_bytes(const StepShape& shape, offload::Durable durable);

// Bytes of this rank's store that have their home in memory: read before the first step.
uint64_t load_bytes(const StepShape& shape);

// Bytes of storage, of all ranks: all slots of all trainable extents, and the frozen base.
uint64_t disk_need(const offload::Layout& layout, offload::Durable durable);

}  // namespace sluice::engine
