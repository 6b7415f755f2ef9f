// The control channel between the ranks of a run: small things of the host, and who has failed. TCP to rank 0, which passes on; used by
// every kind of Comm, so that failures have reasons (MPI_Abort and NCCL give none).
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace sluice::comm {

// Exchanges of one topic match in the order of the calls; those of different topics may come in any order on different ranks, so
// threads that exchange independently use different topics.
enum class Topic : uint8_t { connect, start, data, step, commit, evaluate, close };

struct Failure {
  int rank = -1;                                   // that failed
  base::ErrorKind kind = base::ErrorKind::peer;    // as which; peer: nobody knows better
  std::string reason;
};

struct ControlOptions {
  int rank = 0, world = 1;
  std::vector<std::string> hosts{"127.0.0.1"};  // of rank 0; tried in turn
  uint16_t port = 0;                            // rank 0 listens there
  int listener = -1;       // rank 0: a socket that listens already, taken over; -1: it binds `port`
  std::string job;         // the same on all ranks; a connection of another job is refused
  double deadline = 60;    // seconds that a rank may stay silent, or keep the others waiting
  double connect_deadline = 120;  // seconds in which all ranks must have come
};

// Thread-safe. World 1: no threads, no sockets.
class Control {
 public:
  // Returns when all ranks are here. Error(peer): which are not, and what to check. Error(config): the port is in use, two processes
  // have the same rank, or other numbers of ranks.
  explicit Control(const ControlOptions& options);
  // Without close() before it the others see this rank as failed. Takes at most some seconds.
  ~Control();

  int rank() const;
  int world() const;
  double deadline() const;
  const std::string& job() const;

  // What every rank gave, by rank. Sizes may differ; meant for up to some MB. Error(peer) once any rank has failed, or a rank keeps the
  // others waiting for longer than the deadline (of this call; 0: the channel's).
  std::vector<std::vector<std::byte>> gather(Topic topic, std::span<const std::byte> bytes, double deadline = 0);
  void barrier(Topic topic, double deadline = 0) { gather(topic, {}, deadline); }
  // The values of all ranks: one word each, as before a publish; or several.
  std::vector<uint64_t> gather(Topic topic, uint64_t value, double deadline = 0);
  std::vector<std::vector<double>> gather(Topic topic, std::span<const double> values, double deadline = 0);
  std::vector<std::string> gather(Topic topic, const std::string& text, double deadline = 0);

  // Tells every rank, this one too, that a rank (by default this one) has failed; the first failure counts. Returns when it is on its
  // way. Never throws.
  void fail(base::ErrorKind kind, const std::string& reason) noexcept;
  void fail(const Failure& failure) noexcept;
  bool failed() const noexcept;
  std::optional<Failure> failure() const;
  void check() const;  // Error(peer) once any rank has failed
  // For whoever notices that something is wrong with a rank: waits a moment, since a lost connection is noticed before its reason has come,
  // and else raises `guess`. Never throws; the channel has failed after it.
  void blame(const Failure& guess) noexcept;
  [[noreturn]] void throw_failure(const Failure& guess);  // blame, then check

  // How many collectives this rank's device has begun: travels with the heartbeats. laggard: a rank known to have begun fewer than this
  // one, or -1; rank 0 knows all ranks, others know rank 0.
  void set_progress(uint64_t begun) noexcept;
  int laggard() const;
  // Called once when a rank fails (at once if one has), on a thread of the channel; must be quick. Removed with the handle.
  [[nodiscard]] std::shared_ptr<void> on_failure(std::function<void()> call);

  // All ranks are done: collective. What ends after it is no failure.
  void close();
  bool closed() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::comm
