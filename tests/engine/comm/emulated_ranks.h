// Ranks of a test on an emulated network: threads of this process, each with a plain device of its own.
#pragma once
#include <thread>
#include <vector>

#include "engine/comm/local_group.h"
#include "gpu/emulated_device.h"

namespace sluice::comm {

// body(Comm&, gpu::Device&, gpu::Stream&, const CommOptions&), the options with the rank's device.
template <class Body>
void run_emulated_ranks(int world, const CommOptions& network, const Body& body) {
  LocalGroup group(world);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      const auto device = gpu::make_plain_device({});
      CommOptions options = network;
      options.device = device.get();
      const auto comm = group.join(rank, options);
      const auto stream = device->create_stream("comm");
      body(*comm, *device, *stream, options);
      comm->control().close();
    });
}

}  // namespace sluice::comm
