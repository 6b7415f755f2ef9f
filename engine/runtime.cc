#include "engine/runtime.h"

#include <utility>

#include "base/arena.h"
#include "base/error.h"
#include "gpu/cuda_device.h"
#include "gpu/emulated_device.h"
#include "io/drive_queues.h"
#include "io/throttled_queue.h"
#include "io/timed_queue.h"

namespace sluice::engine {

uint64_t automatic_memory() { return base::available_host_memory() / 10 * 9; }

uint64_t memory_budget(uint64_t wanted, uint64_t other) {
  if (wanted != 0) return wanted;
  const uint64_t free = automatic_memory();
  return other == 0 ? free / 2 : free > other ? free - other : 0;
}

namespace {

uint64_t host_limit(const RuntimeOptions& options) {
  if (options.device == gpu::DeviceKind::cpu) return memory_budget(options.host_memory, options.device_memory);
  return options.host_memory != 0 ? options.host_memory : automatic_memory();
}

void check_links(const Links& links) {
  const std::pair<const char*, double> emulated[] = {{"h2d", links.h2d}, {"d2h", links.d2h}, {"net", links.net}, {"net_latency", links.net_latency}};
  for (const auto& [name, value] : emulated)
    if (value > 0)
      base::fail(base::ErrorKind::config,
                 "machine.links.{} slows the links of the emulated device, and this run is on a GPU, whose copies and collectives nothing here "
                 "can slow down: leave it out, or set machine.device to \"cpu\"",
                 name);
}

std::unique_ptr<gpu::Device> make_device(const RuntimeOptions& options) {
  if (options.device == gpu::DeviceKind::cuda) check_links(options.links);
  if (options.device == gpu::DeviceKind::cuda)
    return gpu::make_cuda_device(
        {.memory = options.device_memory, .index = options.device_index, .deterministic = options.deterministic, .poison = options.poison});
  gpu::EmulatedOptions emulated;
  emulated.memory = memory_budget(options.device_memory, options.host_memory);
  emulated.poison = options.poison;
  emulated.opaque = options.opaque;
  emulated.compute_threads = options.compute_threads;
  emulated.h2d = options.links.h2d;
  emulated.d2h = options.links.d2h;
  return gpu::make_emulated_device(emulated);
}

// What slows the disk slows all drives together.
std::unique_ptr<io::DiskQueue> make_disk_queue(const RuntimeOptions& options) {
  std::unique_ptr<io::DiskQueue> queue = io::make_queue_for(io::drives_of(options.drives), options.queue_kind, options.queue);
  const io::Throttle throttle{.read = options.links.disk_read, .write = options.links.disk_write};
  if (throttle.read > 0 || throttle.write > 0) queue = io::make_throttled_queue(std::move(queue), throttle);
  return io::make_timed_queue(std::move(queue));
}

}  // namespace

Runtime::Runtime(const RuntimeOptions& options)
    : device(make_device(options)),
      comm(options.connect ? options.connect(*device) : nullptr),
      comm_bytes(device->memory().arenas),
      compute(device->create_stream("compute")),
      h2d(device->create_stream("h2d")),
      d2h(device->create_stream("d2h")),
      network(comm ? device->create_stream("comm") : nullptr),
      update(device->host_addressable() ? nullptr : device->create_stream("update")),
      stream_bytes(device->memory().arenas - comm_bytes),
      host("host", host_limit(options), base::ErrorKind::host_memory),
      adam({.threads = options.optimizer_threads, .target = cpu_adam::Target::best}),
      queue(make_disk_queue(options)) {}

offload::Executor::Options Runtime::streams(base::Trace* trace) const {
  return {.compute = compute.get(), .h2d = h2d.get(), .d2h = d2h.get(), .comm = network.get(), .trace = trace};
}

void Runtime::on_compute(std::function<void()> work) {
  compute->enqueue(std::move(work));
  compute->record().synchronize();
}

}  // namespace sluice::engine
