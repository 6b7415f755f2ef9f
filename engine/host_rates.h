// Pieces of work that a machine's rates are measured with: Adam and DRAM. LibTorch-free.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/arena.h"
#include "cpu_adam/adam.h"
#include "cpu_adam/stream.h"

namespace sluice::engine {

inline constexpr size_t kRateTile = 2 << 20;  // parameters of a tile
inline constexpr size_t kStateBytes = 14;     // of a parameter in bf16: hi, lo, m, v, gradient

// Updates of tiles in turn, so many that none is still in the cache. Not thread-safe.
class AdamWork {
 public:
  explicit AdamWork(int threads, size_t tiles = 3);  // threads: 0: all that this process may use
  void update(bool hashes);  // of the next tile; hashes: with leaf checksums, as a step that is written needs them
  void stream();             // the same bytes without the arithmetic
  std::string describe() const { return adam_.describe(); }

 private:
  cpu_adam::TileUpdate next();
  const size_t tiles_;
  const base::Arena arena_;
  const cpu_adam::CpuAdam adam_;
  const cpu_adam::AdamStream stream_;
  const std::vector<cpu_adam::GroupSpan> spans_;
  const std::vector<cpu_adam::StepGroup> groups_;
  cpu_adam::LeafHashes hashes_;
  size_t call_ = 0;
};

// Passes over host memory by all cores at once. Each call moves bytes() in sum.
class DramWork {
 public:
  enum class Pass { read, write, copy };  // copy: reads and writes
  explicit DramWork(unsigned cores);
  void run(Pass pass) const;
  double bytes(Pass pass) const;

 private:
  const unsigned cores_;
  const base::Arena arena_;
};

}  // namespace sluice::engine
