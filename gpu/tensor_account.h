// Which device the tensors that a thread allocates are charged to.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/budget.h"

namespace sluice::gpu {

// The tensors of one device. Thread-safe. Shared with every tensor charged to it, so tensors may outlive the device.
class TensorAccount {
 public:
  TensorAccount(std::shared_ptr<base::Budget> budget, bool poison) : budget_(std::move(budget)), poison_(poison) {}

  [[nodiscard]] base::Reservation charge(uint64_t bytes);  // Error(device_memory)
  void give_back(base::Reservation charge) noexcept;

  bool poison() const { return poison_; }  // fresh and freed tensors are filled with NaN
  uint64_t used() const;
  uint64_t peak() const;  // since the last reset
  void reset_peak();

 private:
  const std::shared_ptr<base::Budget> budget_;
  const bool poison_;
  mutable std::mutex mutex_;  // guards used_ and peak_
  uint64_t used_ = 0;
  uint64_t peak_ = 0;
};

// Of the calling thread; null: its tensors are not charged. The pointer given must outlive the thread or be cleared.
const std::shared_ptr<TensorAccount>* thread_account();
void set_thread_account(const std::shared_ptr<TensorAccount>* account);

}  // namespace sluice::gpu
