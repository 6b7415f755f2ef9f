// Set-up of a ring; private to this folder because of liburing.
#pragma once
#include <liburing.h>

#include <string>

namespace sluice::io {

// A ring for a single issuing thread (the caller). Flags that the kernel does not know are dropped one by
// one, and where it may not lock the memory of the ring the soft limit is raised. 0 or -errno; `flags` tells which were taken.
int set_up_ring(io_uring* ring, unsigned entries, std::string* flags);

// Soft limit to hard limit: what this process may lock without asking anyone. True when it changed.
bool raise_memlock_limit();

}  // namespace sluice::io
