#include "base/budget.h"

#include <algorithm>
#include <utility>

#include "base/units.h"

namespace sluice::base {

Reservation::Reservation(Reservation&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)), purpose_(std::move(other.purpose_)), bytes_(std::exchange(other.bytes_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    release();
    budget_ = std::exchange(other.budget_, nullptr);
    purpose_ = std::move(other.purpose_);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Reservation::release() noexcept {
  if (budget_ != nullptr) std::exchange(budget_, nullptr)->release(purpose_, bytes_);
}

Reservation Budget::reserve(std::string_view purpose, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > limit_ - used_)
    fail(kind_, "the {} budget is too small for {}: need {}, have {} of {} left", name_, purpose, format_bytes(bytes),
         format_bytes(limit_ - used_), format_bytes(limit_));
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  by_purpose_[std::string(purpose)] += bytes;
  return Reservation(this, std::string(purpose), bytes);
}

void Budget::release(const std::string& purpose, uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
  if (const auto it = by_purpose_.find(purpose); it != by_purpose_.end()) it->second -= bytes;
}

uint64_t Budget::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}
uint64_t Budget::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}
void Budget::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = used_;
}
std::map<std::string, uint64_t> Budget::used_by_purpose() const {
  const std::lock_guard lock(mutex_);
  return by_purpose_;
}

}  // namespace sluice::base
