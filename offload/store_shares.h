// How much of a store each of its drives gets.
#pragma once
#include <cstdint>
#include <vector>

#include "offload/store.h"
#include "offload/store_lock.h"

namespace sluice::offload {

// In proportion to the rates, in hundredths of the fastest, at least one. Rates in any unit, positive.
std::vector<uint32_t> shares_of(const std::vector<double>& rates);

// Of a store that is made now: as options.drive_rates say; where they say nothing and there are several drives, as they are measured.
std::vector<uint32_t> choose_shares(const StoreOptions& options);

// options.drive_rates ask for other shares than the store was made with, on the drives where it is.
bool wants_other_shares(const StoreOptions& options, const StoreFiles& files);

}  // namespace sluice::offload
