// How the ranks of a run find each other: each connects to rank 0.
#pragma once
#include <vector>

#include "engine/comm/control.h"
#include "engine/comm/frame.h"

namespace sluice::comm {

// Rank 0: a link to every other rank, by rank (links[0] is closed). Others: links[0], to rank 0. Blocks until all are there. Errors as
// Control's constructor.
std::vector<FrameLink> meet(const ControlOptions& options);

}  // namespace sluice::comm
