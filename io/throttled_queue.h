// A disk queue as slow as one wishes, around another one: for emulated drives.
#pragma once
#include <memory>

#include "io/disk_queue.h"

namespace sluice::io {

struct Throttle {
  double read = 0, write = 0;  // bytes per second; 0: as fast as the inner queue
};

// A request ends when the inner queue is done with it, and not before its bytes have passed a link of that rate, which reads (and
// writes) share in the order of submission. Nothing is slower than that: submit() returns at once.
std::unique_ptr<DiskQueue> make_throttled_queue(std::unique_ptr<DiskQueue> inner, const Throttle& throttle);

}  // namespace sluice::io
