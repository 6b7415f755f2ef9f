// LibTorch's CPU allocator on top of TensorMemory: the one process-wide object of the project. In target sluice_gpu_emulated.
#pragma once
#include "gpu/tensor_memory.h"

namespace sluice::gpu {

// Every CPU tensor allocated from now on, on any thread, comes from one TensorMemory. Thread-safe; done once, never undone, and
// the memory is never torn down, because tensors may outlive everything else.
void install_tensor_allocator();

TensorMemoryStats tensor_memory_stats();
void release_cached_tensors();  // after a phase whose tensors have other sizes (loading)

}  // namespace sluice::gpu
