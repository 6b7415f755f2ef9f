// A device of LibTorch CPU tensors with a hard memory budget, stream threads and optional poisoning.
#pragma once
#include <functional>

#include "gpu/device.h"

namespace sluice::gpu {

struct EmulatedOptions {
  uint64_t memory = 8ull << 30;  // budget in bytes for arenas and LibTorch tensors together
  bool poison = false;           // tests: NaN in freed memory and in copy targets until the copy has run
  // Tests: behave as a GPU does to its caller. The host may not address device memory, and copies need registered host memory.
  bool opaque = false;
  int compute_threads = 0;       // LibTorch intra-op threads; 0: all this process may use
  double h2d = 0, d2h = 0;       // link throttles, bytes per second; 0: none
};

// LibTorch CPU tensors allocated on a thread of one of this device's streams are charged to its budget (requested bytes;
// blocks cached for reuse do not count). The process-wide caching allocator is installed on first use and never removed.
// Allocations on other threads, OpenMP workers among them, are not charged: so a peak is the same in every run.
// In target sluice_gpu_emulated, which needs LibTorch.
std::unique_ptr<Device> make_emulated_device(const EmulatedOptions& options);

// How a device without LibTorch prepares its stream threads. Called on each new stream thread, before any work; must not throw.
using StreamThreadStart = std::function<void()>;

// The same device with tensors left uncharged unless an allocator asks thread_account() (gpu/tensor_account.h). compute_threads
// is ignored.
std::unique_ptr<Device> make_plain_device(const EmulatedOptions& options, StreamThreadStart thread_start = {});

}  // namespace sluice::gpu
