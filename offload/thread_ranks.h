// Ranks that are threads of one process: several ranks in one test.
#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "offload/ranks.h"

namespace sluice::offload {

// Runs `body` once for each rank, on a thread of its own. A rank that throws, or returns while others wait for it, fails the others
// with Error(peer). Returns what each threw, by rank; null: nothing. Limits of time are not kept.
std::vector<std::exception_ptr> run_thread_ranks(int world, const std::function<void(Ranks& ranks)>& body);

}  // namespace sluice::offload
