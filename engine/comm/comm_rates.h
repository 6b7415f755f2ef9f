// How fast the ranks of a run exchange: for machine profiles.
#pragma once
#include "engine/comm/comm.h"

namespace sluice::comm {

struct CommRates {
  double gather = 0, reduce = 0;  // bytes per second that a rank receives from the others; of a reduction, in bf16, its sum included
  double latency = 0;             // seconds of a gather of a few bytes
};

// Collective; the same on every rank: the slowest one's. Takes about 3 * seconds, and so many bytes of the device's memory for the time.
// With nothing else running.
CommRates measure_comm(Comm& comm, gpu::Device& device, gpu::Stream& stream, uint64_t bytes = 64 << 20, double seconds = 0.3);

}  // namespace sluice::comm
