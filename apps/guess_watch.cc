#include "apps/guess_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::apps {

std::string GuessWatch::wrong_text() const {
  return fmt::format("{} of the last {} guesses were wrong, since the gradient was clipped or not finite", std::ranges::count(wrong_, true), wrong_.size());
}

std::optional<std::string> GuessWatch::add(bool guessed, bool redone) {
  std::optional<std::string> message;
  if (guessed_ == true && !guessed) message = wrong_text() + ": updates wait for the norm from now on, until guesses would come true again";
  if (guessed_ == false && guessed && ever_) message = "gradients are rarely clipped now: updates are made on the guess again";
  guessed_ = guessed;
  ever_ = ever_ || guessed;
  if (!guessed) {
    wrong_.clear();
    return message;
  }
  wrong_.push_back(redone);
  if (wrong_.size() > kWindow) wrong_.erase(wrong_.begin());
  const auto wrong = static_cast<double>(std::ranges::count(wrong_, true));
  if (gives_up_ || told_ || wrong_.size() < kWindow || wrong < kUseless * static_cast<double>(kWindow)) return message;
  told_ = true;
  return wrong_text() + ", and each step is updated twice. execution.overlap = \"forward\" makes no guess, \"auto\" stops guessing where it does not pay";
}

}  // namespace sluice::apps
