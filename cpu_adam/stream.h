// The memory side of an update without its arithmetic: what Adam could reach at most.
#pragma once
#include <memory>

#include "cpu_adam/adam.h"

namespace sluice::cpu_adam {

// By as many threads as a CpuAdam of the same number has. Not thread-safe.
class AdamStream {
 public:
  explicit AdamStream(int threads);  // 0: all that this process may use
  ~AdamStream();
  // Reads the gradient and reads and writes the other arrays of the tile, together and in place, as the kernels do. Changes nothing.
  // Of the tile only state, count and grad are looked at. Error(bug) for state of another kind than Adam's on bf16 or fp32.
  void run(const TileUpdate& tile) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::cpu_adam
