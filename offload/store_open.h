// Parts of OPEN that create uses too.
#pragma once
#include "offload/ranks.h"
#include "offload/store.h"

namespace sluice::offload {

// Collective. Error(config) on all ranks when one was started with another model, tile, storage.paths or durability than rank 0.
void check_same_options(const StoreOptions& options, const Layout& layout, Ranks& ranks);

}  // namespace sluice::offload
