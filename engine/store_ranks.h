// The ranks of a run as the store sees them, over the control channel.
#pragma once
#include "engine/comm/control.h"
#include "offload/ranks.h"

namespace sluice::engine {

class StoreRanks : public offload::Ranks {
 public:
  explicit StoreRanks(comm::Control& control) : control_(control) {}  // outlives the object
  int rank() const override { return control_.rank(); }
  int world() const override { return control_.world(); }
  std::vector<offload::Bytes> gather(std::span<const std::byte> bytes, double seconds) override {
    return control_.gather(comm::Topic::commit, bytes, seconds);
  }

 private:
  comm::Control& control_;
};

}  // namespace sluice::engine
