// What LibTorch's temporaries of a step take on the device, by formula: for `sluice plan`, which runs
// nothing. LibTorch-free.
#pragma once
#include <cstdint>

#include "engine/hf_config.h"
#include "engine/step_shape.h"

namespace sluice::engine {

struct TemporariesOptions {
  bool training = true;
  uint32_t keep_graphs = 0;
  uint32_t lowest_trainable = 0;
  int64_t loss_chunk = 512;      // tokens
  uint32_t compute_threads = 1;  // each has scratch for attention
};

// Bytes at the worst moment of a step, as measure_temporaries() (dry_run.h) counts them by running each kind
// of block: the same operations in the same order, with sizes instead of tensors.
// tests/engine/temporaries_test.cc holds the two within 2 %.
uint64_t estimate_temporaries(const HfConfig& config, const StepShape& shape,
                              const TemporariesOptions& options);

}  // namespace sluice::engine
