// Norm, Gate, Update and the commit operations: the optimizer on tiles, on the update and commit lanes.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "cpu_adam/adam.h"
#include "engine/device_update.h"
#include "engine/step.h"
#include "engine/step_buffers.h"
#include "offload/executor.h"
#include "offload/store.h"

namespace sluice::engine {

class UpdateOps {
 public:
  struct Options {
    double clip = 1.0;              // 0: off
    bool skip_nonfinite = false;    // false: Error(numerics) before any write, but for an overflow that the scaler answers
    LossScaler scaler = LossScaler(LossScalerOptions{});
    bool hash = true;               // extents are written: their hashes are needed
  };
  // device: works on the tiles whose state is on the device, and must outlive the object; null when the host works on every tile.
  UpdateOps(const StepShape& shape, StepBuffers& buffers, const cpu_adam::CpuAdam& adam, DeviceUpdate* device, const Options& options);

  void norm(const offload::OpRun& run, Step& step) const;
  void gate(Step& step) const;
  void update(const offload::OpRun& run, Step& step) const;

  uint32_t leaf_count() const { return leaf_count_; }  // entries of Step::leaf_sums

 private:
  cpu_adam::Gradient gradient(const offload::OpRun& run, std::initializer_list<offload::Ring> rings) const;
  bool on_device(const offload::Tile& tile) const { return device_ != nullptr && shape_.state_on_device(tile.block); }
  void leaf_norms(const offload::Tile& tile, const cpu_adam::Gradient& grad, const cpu_adam::Gradient& tied, size_t count, std::span<double> sums) const;
  // The first element of a leaf (`count` of them) whose sum is not finite.
  size_t find_nonfinite(const offload::Tile& tile, cpu_adam::Gradient grad, cpu_adam::Gradient tied, size_t count) const;
  std::string where_nonfinite(const Step& step) const;
  [[noreturn]] void fail_nonfinite(const Step& step) const;

  const StepShape& shape_;
  StepBuffers& buffers_;
  const cpu_adam::CpuAdam& adam_;
  DeviceUpdate* const device_;
  const Options options_;
  std::vector<uint32_t> first_leaf_;                            // by tile, into Step::leaf_sums
  std::vector<std::vector<cpu_adam::GroupSpan>> spans_;         // by tile
  uint32_t leaf_count_ = 0;
};

}  // namespace sluice::engine
