// Is it worth updating on a guess? Counts how often the guess fails, or would have.
#pragma once
#include <cstddef>
#include <deque>

namespace sluice::engine {

// Switching is free in bits: a deferred update gives the same ones. Not thread-safe.
class GuessPolicy {
 public:
  static constexpr size_t kWindow = 20, kLeast = 4;  // steps that are looked back on; below kLeast the guess is trusted

  // limit: share of failed guesses above which redoing them costs more than guessing gains.
  explicit GuessPolicy(double limit) : limit_(limit) {}

  void add(bool failed);
  bool guess() const { return guess_; }  // the next step

 private:
  const double limit_;
  std::deque<bool> failed_;
  bool guess_ = true;
};

}  // namespace sluice::engine
