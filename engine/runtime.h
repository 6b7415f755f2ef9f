// The machine side of a run: device and its streams, disk queue, CPU optimizer, memory budgets.
#pragma once
#include <functional>
#include <memory>

#include "base/budget.h"
#include "cpu_adam/adam.h"
#include "engine/comm/comm.h"
#include "gpu/device.h"
#include "io/disk_queue.h"
#include "offload/executor.h"

namespace sluice::engine {

// Emulated: bytes per second; 0: as the machine has it. Those of the disk slow any run, the others need the emulated device.
struct Links {
  double h2d = 0, d2h = 0, disk_read = 0, disk_write = 0;
  double net = 0, net_latency = 0;  // what a rank receives from the others; seconds of a collective before that (trainer.cc)
};

struct RuntimeOptions {
  gpu::DeviceKind device = gpu::DeviceKind::cpu;
  int device_index = 0;        // CUDA: of several
  bool deterministic = true;   // CUDA: kernels that give the same bits in every run
  uint64_t device_memory = 0;  // bytes; 0: what is free less a margin
  uint64_t host_memory = 0;    // same
  int compute_threads = 0;     // LibTorch threads; 0: all that this process may use
  int optimizer_threads = 0;
  bool poison = false;         // tests
  bool opaque = false;         // tests: EmulatedOptions::opaque
  io::QueueKind queue_kind = io::QueueKind::automatic;
  io::QueueOptions queue;                     // of each drive
  std::vector<std::filesystem::path> drives;  // folders of the store's: each drive has a queue of its own
  Links links;
  // Several ranks: makes the communicator once there is a device. Empty: one rank.
  std::function<std::unique_ptr<comm::Comm>(gpu::Device& device)> connect;
};

// Members are destroyed in reverse order: queue before streams before the device.
struct Runtime {
  explicit Runtime(const RuntimeOptions& options);
  offload::Executor::Options streams(base::Trace* trace) const;
  // Runs LibTorch work on the compute stream's thread and waits; rethrows its error.
  void on_compute(std::function<void()> work);

  std::unique_ptr<gpu::Device> device;
  std::unique_ptr<comm::Comm> comm;     // null: one rank
  const uint64_t comm_bytes;            // of device memory, for the communicator: counted by StepShape
  std::unique_ptr<gpu::Stream> compute, h2d, d2h;
  std::unique_ptr<gpu::Stream> network;  // of collectives; null: one rank
  std::unique_ptr<gpu::Stream> update;  // null when the host can work on device memory
  const uint64_t stream_bytes;          // of device memory, for the streams
  base::Budget host;
  cpu_adam::CpuAdam adam;
  std::unique_ptr<io::DiskQueue> queue;
};

// Bytes that "auto" takes: what is free less a tenth.
uint64_t automatic_memory();
// `wanted`, or, when it is 0, what is left of that beside `other`. The emulated device lives in RAM too: "auto" for both gives each
// half of what is free.
uint64_t memory_budget(uint64_t wanted, uint64_t other);

}  // namespace sluice::engine
