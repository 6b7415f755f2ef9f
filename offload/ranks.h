// The ranks of a run, as the store sees them: who this one is, small messages of the host, and agreement on failures. Free of any
// transport.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::offload {

using Bytes = std::vector<std::byte>;

// What goes into messages, and back. Words lie as they do in memory: all ranks have the same byte order.
Bytes bytes_of(std::string_view text);
Bytes bytes_of(std::span<const uint64_t> words);
std::string text_of(const Bytes& bytes);
std::vector<uint64_t> words_of(const Bytes& bytes);

// How long an exchange may keep the others waiting. Work whose length nobody knows (filling a store, waiting for a lock) has no limit;
// a rank that has died is noticed all the same.
inline constexpr double kUsualWait = 0;  // the transport's own limit
inline constexpr double kAnyWait = std::numeric_limits<double>::infinity();

// All members but rank() and world() are collective: every rank calls the same ones in the same order. One call at a time.
class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;

  // What every rank gave, by rank. Sizes may differ; at most some MB in all. Returns once all have come: a barrier. Error(peer), with
  // the reason where there is one, when a rank has failed, is gone, or is later than `seconds`.
  virtual std::vector<Bytes> gather(std::span<const std::byte> bytes, double seconds) = 0;

  // Runs `work` on every rank (which must not be collective itself) and returns what each gave. If it threw anywhere, it throws
  // everywhere: here its own error, on the others Error(peer) with the reason of the first rank that failed. `what` names the exchange:
  // ranks that have come to different ones get Error(bug).
  std::vector<Bytes> exchange(std::string_view what, const std::function<Bytes()>& work, double seconds = kAnyWait);
  // The same for work without a result.
  void agree(std::string_view what, const std::function<void()>& work, double seconds = kAnyWait);
  // Runs `work` on rank 0 alone; returns its result on all.
  Bytes from_first(std::string_view what, const std::function<Bytes()>& work, double seconds = kAnyWait);
  void on_first(std::string_view what, const std::function<void()>& work, double seconds = kAnyWait);
};

// A run of one rank. Has no state: any number of stores may use it.
Ranks& single_rank();

}  // namespace sluice::offload
