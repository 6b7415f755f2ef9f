#include "engine/comm/connect.h"

#include <unistd.h>

#include "engine/comm/host_comm.h"
#include "engine/comm/nccl_comm.h"
#include "engine/comm/socket_comm.h"

namespace sluice::comm {

namespace {

void tell_launcher(int pipe) {
  if (pipe < 0) return;
  [[maybe_unused]] const auto ignored = write(pipe, "", 1);  // a launcher that has gone needs not be told
  close(pipe);
}

}  // namespace

Meeting meet(const LaunchEnvironment& launch, double deadline) {
  Meeting meeting{launch, nullptr, nullptr};
  ControlOptions options;
  options.deadline = deadline;
  options.rank = launch.rank;
  options.world = launch.world;
  options.hosts = {launch.host};
  options.port = launch.port;
  options.listener = launch.listener;
  options.job = launch.job;
  if (launch.mpi && launch.world > 1) {
    meeting.mpi = start_mpi();
    meeting.mpi->arrange(options);
  }
  meeting.control = std::make_shared<Control>(options);
  tell_launcher(launch.met);
  return meeting;
}

std::unique_ptr<Comm> make_comm(Meeting meeting, const CommOptions& options) {
  if (meeting.launch.world == 1) return make_self_comm(options);
  if (options.device->kind() == gpu::DeviceKind::cuda) return make_nccl_comm(std::move(meeting.mpi), std::move(meeting.control), options);
  if (meeting.mpi) return make_mpi_comm(std::move(meeting.mpi), std::move(meeting.control), options);
  return make_socket_comm(std::move(meeting.control), options);
}

}  // namespace sluice::comm
