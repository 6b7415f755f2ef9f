#include "gpu/cpu_allocator.h"

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sched.h>

#include "gpu/emulated_device.h"

namespace sluice::gpu {
namespace {

TensorMemory& tensor_memory() {
  static auto* const memory = new TensorMemory;  // never destroyed
  return *memory;
}

// Errors of TensorMemory pass through LibTorch's frames as they are, backward included.
class CpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const data = tensor_memory().allocate(bytes);
    return {data, data, &free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void free(void* data) { tensor_memory().free(data); }
};

int usable_cpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
}

}  // namespace

void install_tensor_allocator() {
  static const bool installed = [] {
    c10::SetCPUAllocator(new CpuAllocator);  // LibTorch keeps it for good
    return true;
  }();
  (void)installed;
}

TensorMemoryStats tensor_memory_stats() { return tensor_memory().stats(); }
void release_cached_tensors() { tensor_memory().release_cached(); }

std::unique_ptr<Device> make_emulated_device(const EmulatedOptions& options) {
  install_tensor_allocator();
  const int threads = options.compute_threads > 0 ? options.compute_threads : usable_cpus();
  // The number is partly the process's (ATen), partly the calling thread's (OpenMP, MKL): so it is set on each stream thread.
  return make_plain_device(options, [threads] { at::set_num_threads(threads); });
}

}  // namespace sluice::gpu
