// A byte budget and move-only charges against it, each with a purpose, so that a memory table falls out for free.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "base/error.h"

namespace sluice::base {

class Budget;

// One charge; given back by the destructor. The budget must outlive it.
class Reservation {
 public:
  Reservation() = default;
  ~Reservation() { release(); }
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  uint64_t bytes() const { return bytes_; }
  void release() noexcept;

 private:
  friend class Budget;
  Reservation(Budget* budget, std::string purpose, uint64_t bytes) : budget_(budget), purpose_(std::move(purpose)), bytes_(bytes) {}
  Budget* budget_ = nullptr;
  std::string purpose_;
  uint64_t bytes_ = 0;
};

// Thread-safe.
class Budget {
 public:
  // kind: which error an overrun is (host_memory, device_memory, disk). name: "device", "host", ... for messages.
  Budget(std::string name, uint64_t limit, ErrorKind kind) : name_(std::move(name)), limit_(limit), kind_(kind) {}

  // Throws Error(kind) naming purpose, need and what is left.
  [[nodiscard]] Reservation reserve(std::string_view purpose, uint64_t bytes);

  uint64_t limit() const { return limit_; }
  uint64_t used() const;
  uint64_t peak() const;
  void reset_peak();
  std::map<std::string, uint64_t> used_by_purpose() const;

 private:
  friend class Reservation;
  void release(const std::string& purpose, uint64_t bytes) noexcept;

  const std::string name_;
  const uint64_t limit_;
  const ErrorKind kind_;
  mutable std::mutex mutex_;  // guards all below
  uint64_t used_ = 0;
  uint64_t peak_ = 0;
  std::map<std::string, uint64_t> by_purpose_;
};

}  // namespace sluice::base
