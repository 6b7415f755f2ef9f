// The contract of a compute device, shaped for CUDA streams and events. Free of LibTorch and CUDA headers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/budget.h"
#include "gpu/adam_math.h"
#include "gpu/rank_sum.h"
#include "gpu/wire_type.h"

namespace sluice::gpu {

// A point in a stream's work. A cheap handle; copies name the same point. A default-constructed event is already reached.
// Thread-safe.
class Event {
 public:
  struct State;
  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  bool reached() const;
  void synchronize() const;  // host waits; rethrows the error of the work before it, if any
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

struct Event::State {
  virtual ~State() = default;
  virtual bool reached() const = 0;
  virtual void synchronize() const = 0;
};

inline bool Event::reached() const { return !state_ || state_->reached(); }
inline void Event::synchronize() const {
  if (state_) state_->synchronize();
}

// Device memory of fixed size, one allocation, charged to the device's budget under its purpose for its whole life.
// Move-only owner. data() is a device address: on the emulated device also a host address, on CUDA not.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 protected:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Host memory that a device may copy from and to. Destroyed when no copy that uses it is in flight, and before the memory.
class HostRegistration {
 public:
  virtual ~HostRegistration() = default;
};

// A FIFO of device work. Calls return at once; one host thread enqueues at a time. The first failure in a stream is kept:
// later work of the stream is skipped and every event after it rethrows that failure, as does the work of another stream that
// waits for such an event.
// Host memory given to a copy is registered with the device, and stays alive and untouched until an event recorded after it is
// reached.
class Stream {
 public:
  virtual ~Stream() = default;  // waits for its work
  // Emulated: runs `work` on the stream's thread, in order. CUDA: runs it now on the calling thread with this stream current
  // (so it must only enqueue device work).
  virtual void enqueue(std::function<void()> work) = 0;
  // The target's old content counts as dead as soon as the stream's earlier work and waits are done: with poisoning on, it is
  // NaN from then until the copy has run.
  virtual void copy_in(std::byte* device, const std::byte* host, size_t bytes) = 0;
  virtual void copy_out(std::byte* host, const std::byte* device, size_t bytes) = 0;
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;  // within device memory; no overlap
  // Rounds `count` fp32 device values to the wire type on the way to `to` (host or device memory).
  virtual void cast_out(std::byte* to, const float* device, size_t count, WireType type) = 0;
  // Optimizer on device memory, with the bits of cpu_adam. sums: device memory, one for each leaf of kLeafElements.
  virtual void leaf_norms(double* sums, const WireGradient& grad, size_t count) = 0;
  virtual void adam(const AdamRun& run) = 0;
  // Gradients of all ranks, added in rank order (gpu/rank_sum.h).
  virtual void rank_sum(const RankSum& sum) = 0;
  virtual Event record() = 0;
  virtual void wait(const Event& event) = 0;  // later work of this stream waits for the event; the host does not
  virtual void synchronize() = 0;  // host waits for all work so far; rethrows the stream's failure
  // CUDA: the cudaStream_t, for libraries that enqueue on it inside enqueue(). Emulated: null.
  virtual void* native() const { return nullptr; }
};

struct MemoryStats {
  uint64_t limit = 0;            // bytes; the device budget
  uint64_t arenas = 0;           // DeviceBuffers alive
  uint64_t temporaries = 0;      // LibTorch tensors alive
  uint64_t temporaries_peak = 0; // since the last reset
  uint64_t held_peak = 0;        // most that LibTorch's allocator held for tensors, cached and unusable parts included
  uint64_t runtime = 0;          // on the device beside both: context, kernels, communicators (and what other processes have there)
  uint64_t peak = 0;             // of arenas + temporaries (CUDA: of each, added)
};

enum class DeviceKind { cpu, cuda };

// Thread-safe. Streams, buffers and events must be gone before the device.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string describe() const = 0;
  virtual DeviceKind kind() const = 0;
  virtual int index() const = 0;  // among the devices of its kind
  // May the host read and write device memory (when no device work touches it)?
  virtual bool host_addressable() const = 0;
  virtual std::unique_ptr<Stream> create_stream(const std::string& name) = 0;
  virtual std::unique_ptr<DeviceBuffer> allocate(size_t bytes, const std::string& purpose) = 0;  // Error(device_memory)
  // Page-locks the range, where the device needs that. Whole pages; Error(host_memory) when the system refuses.
  [[nodiscard]] virtual std::unique_ptr<HostRegistration> register_host(std::span<std::byte> range) = 0;
  virtual base::Budget& budget() = 0;
  virtual MemoryStats memory() const = 0;
  virtual void reset_peak() = 0;
  // Marks device memory whose content is no longer valid. With poisoning on (tests) it is filled with NaN.
  virtual void poison(std::byte* data, size_t bytes) = 0;
};

}  // namespace sluice::gpu
