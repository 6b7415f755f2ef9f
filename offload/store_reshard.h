// RESHARD: a store of another world, tile, placement or number of slots is rewritten. Protocol: docs/store_format.md, "Reshard".
#pragma once
#include <string>

#include "offload/store_failpoint.h"
#include "offload/store_lock.h"
#include "offload/store.h"

namespace sluice::offload {

// What differs between the store and what this run wants of it, one line each with both values; empty: nothing. Collective: the files
// may be in their place on one rank and not on another.
std::vector<std::string> differences(const StoreFiles& files, const StoreOptions& options, const Layout& layout, Ranks& ranks);

// The store as `layout` and `options` want it, opened and locked, at RUN/store; the old one is gone. old: after OPEN 5. Collective. On an
// error before the exchange of names the old store is untouched.
OpenedStore reshard(const OpenedStore& old, const Layout& old_layout, const StoreOptions& options, const Layout& layout,
                    Ranks& ranks, Failpoints& failpoints);

}  // namespace sluice::offload
