// Collectives whose data the host moves: the emulated device. What differs is how bytes get from rank to rank.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "engine/comm/comm.h"

namespace sluice::comm {

// How one rank's bytes get to the others. Only used by one thread at a time.
class Transport {
 public:
  virtual ~Transport() = default;
  // Sends and receives all parcels; returns when both are done and the memory may be reused. Error(peer): a rank has failed, or nothing
  // has moved for the deadline of the control channel. Error(bug): the other end expects another size.
  virtual void exchange(std::span<const Parcel> parcels) = 0;
  virtual std::string describe() const = 0;  // "TCP"
};

// options.device must be one whose memory the host can address, whether its user may or not.
std::unique_ptr<Comm> make_host_comm(std::shared_ptr<Control> control, std::unique_ptr<Transport> transport, const CommOptions& options);

// One rank: copies and rounds. Works on every device; transports nothing.
std::unique_ptr<Comm> make_self_comm(const CommOptions& options);

}  // namespace sluice::comm
