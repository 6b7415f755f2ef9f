// What the math of a model reaches on a device.
#pragma once
#include "base/rounds.h"
#include "engine/machine_measure.h"
#include "gpu/device.h"

namespace sluice::engine {

// FLOP per second (engine/flops.h counts them) of forward, backward and loss at the model's own widths, in
// the shares of a whole step. Large layers are measured at half or a quarter of their widths, long batches by
// a part of their tokens. Each round takes about twice options.seconds.
base::Rounds measure_compute(const MeasureOptions& options, gpu::Device& device, int rounds);

// FLOP per second of one matrix product of a layer's width in the compute type, the best of about options.seconds: what
// measure_compute() could reach at most.
double measure_product(const MeasureOptions& options, gpu::Device& device);

}  // namespace sluice::engine
