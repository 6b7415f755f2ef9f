// One rank among those of a run: meets the others, takes the first one's decisions, and says when it fails.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/comm/connect.h"
#include "engine/trainer.h"

namespace sluice::apps {

class RankSession {
 public:
  // Collective when there are several: returns when all are there. Error(peer), Error(config).
  explicit RankSession(const comm::LaunchEnvironment& launch);

  bool several() const { return launch_.world > 1; }
  bool first() const { return launch_.rank == 0; }
  uint64_t world() const { return static_cast<uint64_t>(launch_.world); }
  // Processes that share this machine's cores and memory.
  uint64_t on_this_host() const { return static_cast<uint64_t>(std::max(1, launch_.local_world)); }

  // Collective: the first rank's text, on every rank.
  std::string from_first(const std::string& text);
  // Collective, while the channel or the trainer that took it over is there: what every rank gave, by rank.
  std::vector<std::string> from_all(const std::string& text);
  // The communicator; takes over the channel. Collective; once; with several ranks.
  std::unique_ptr<comm::Comm> make_comm(const comm::CommOptions& options);
  // So that the trainer makes it.
  void connect(engine::TrainerOptions& options);

  // Runs `work`; when it fails here, the other ranks are told why. The communicator has the channel from its construction on (one that fails in
  // between ends it, which the others see): Channel::of_comm is for work within its life.
  enum class Channel { own, of_comm };
  template <class Work>
  auto guard(Channel channel, const Work& work) {
    try {
      return work();
    } catch (const base::Error& error) {
      tell(channel, error.kind(), error.what());
      throw;
    } catch (const std::exception& error) {
      tell(channel, base::ErrorKind::bug, error.what());
      throw;
    }
  }

 private:
  void tell(Channel channel, base::ErrorKind kind, const char* reason) noexcept;

  const comm::LaunchEnvironment launch_;
  comm::Meeting meeting_;
  comm::Control* control_ = nullptr;  // in meeting_, then in the Comm; null: one rank
  bool handed_over_ = false;
};

}  // namespace sluice::apps
