// A disk queue that fails on purpose, around another one; for tests.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "io/disk_queue.h"

namespace sluice::io {

struct FaultRule {
  enum class Kind {
    io_error,          // nothing is transferred; Error(disk)
    no_space,          // the same, with the other cause
    short_then_error,  // the first half is transferred; Error(disk)
    bit_flip,          // all is transferred, one bit wrong; no error
    lost_write,        // nothing is transferred; no error
  };
  Kind kind = Kind::io_error;
  std::optional<IoOp> op;  // none: any
  uint64_t at = 1;         // the at-th request that matches, counted from 1 since the rules were set
  bool every = false;      // and every at-th after it
};

struct FaultyOptions {
  std::vector<FaultRule> rules;            // the first one that fits a request applies
  std::chrono::microseconds max_delay{0};  // each request is held back for a random time: delays and reorders
  uint64_t seed = 1;
};

class FaultyQueue final : public DiskQueue {
 public:
  explicit FaultyQueue(std::unique_ptr<DiskQueue> inner, FaultyOptions options = {});
  ~FaultyQueue() override;

  void set_rules(std::vector<FaultRule> rules);  // counting starts again
  uint64_t injected() const;                     // faults so far

  void submit(const IoRequest& request, IoDone done) override;
  void register_memory(std::span<const std::span<std::byte>> regions) override;
  void drain() override;
  QueueStats stats() const override;  // of the inner queue; an injected failure counts as one
  std::string describe() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::io
