#include "gpu/trace_range.h"

#include <nvtx3/nvToolsExt.h>

namespace sluice::gpu {

TraceRange::TraceRange(const std::string& name) { nvtxRangePushA(name.c_str()); }
TraceRange::~TraceRange() { nvtxRangePop(); }

}  // namespace sluice::gpu
