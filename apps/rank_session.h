// One rank among those of a run: meets the others, takes the first one's decisions, and says when it fails.
#pragma once
#include <memory>
#include <string>
#include <vector>

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

  // "4 ranks over TCP"; empty: one rank, or no communicator yet.
  const std::string& transport() const { return transport_; }

  // Collective: the first rank's text, on every rank.
  std::string from_first(const std::string& text);
  // Collective: what every rank gave, by rank.
  std::vector<std::string> from_all(const std::string& text);
  // The communicator. Collective; once; with several ranks.
  std::unique_ptr<comm::Comm> make_comm(const comm::CommOptions& options);
  // So that the trainer makes it.
  void connect(engine::TrainerOptions& options);

  // Runs `work`; when it fails here, the other ranks are told why, and when it fails because another one has, it throws PeerError. May be
  // nested: what the inner one tells comes before what its caller holds is destroyed.
  template <class Work>
  auto guard(const Work& work) {
    try {
      return work();
    } catch (const std::exception&) {
      rethrow();
    }
  }

 private:
  [[noreturn]] void rethrow();

  const comm::LaunchEnvironment launch_;
  comm::Meeting meeting_;  // empty: one rank
  std::string transport_;
};

}  // namespace sluice::apps
