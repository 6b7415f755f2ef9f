// Does updating on a guess pay? What was updated before the gradient's norm was known is updated once more where the gradient is clipped.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace sluice::apps {

// Not thread-safe.
class GuessWatch {
 public:
  static constexpr size_t kWindow = 20;     // guesses that are looked back on
  static constexpr double kUseless = 0.8;  // share of wrong ones

  // gives_up: the run itself stops guessing while it fails too often (engine/guess_policy.h).
  explicit GuessWatch(bool gives_up) : gives_up_(gives_up) {}
  // A message when the run has stopped guessing or begun again, or, once, when nearly all guesses are wrong and it goes on.
  std::optional<std::string> add(bool guessed, bool redone);

 private:
  std::string wrong_text() const;

  const bool gives_up_;
  std::vector<bool> wrong_;      // of the latest guesses
  std::optional<bool> guessed_;  // the step before
  bool ever_ = false, told_ = false;
};

}  // namespace sluice::apps
