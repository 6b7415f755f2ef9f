#include "gpu/tensor_account.h"

#include <algorithm>
#include <utility>

namespace sluice::gpu {
namespace {

thread_local const std::shared_ptr<TensorAccount>* t_account = nullptr;

}  // namespace

base::Reservation TensorAccount::charge(uint64_t bytes) {
  base::Reservation charge = budget_->reserve("LibTorch tensors", bytes);
  const std::lock_guard lock(mutex_);
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  return charge;
}

void TensorAccount::give_back(base::Reservation charge) noexcept {
  const std::lock_guard lock(mutex_);
  used_ -= charge.bytes();
}

uint64_t TensorAccount::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

uint64_t TensorAccount::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

void TensorAccount::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = used_;
}

const std::shared_ptr<TensorAccount>* thread_account() { return t_account; }
void set_thread_account(const std::shared_ptr<TensorAccount>* account) { t_account = account; }

}  // namespace sluice::gpu
