// What ends a command: one message and an exit code.
#pragma once
#include "base/error.h"

namespace sluice::apps {

// The exception being handled, as one of ours: those of the standard library have kinds too.
base::Error current_error();

// Another rank has failed. The process ends with that rank's kind all the same: mpirun ends all ranks with the first one that ends, and its code is
// then the same whichever that is. peer: nobody knows better.
class PeerError : public base::Error {
 public:
  PeerError(base::ErrorKind cause, const std::string& message) : Error(base::ErrorKind::peer, message), cause_(cause) {}
  base::ErrorKind cause() const { return cause_; }

 private:
  base::ErrorKind cause_;
};

}  // namespace sluice::apps
