#include "offload/ranks.h"

#include <cstring>
#include <exception>
#include <string>

#include "base/error.h"
#include "base/hash.h"

namespace sluice::offload {
namespace {

using base::ErrorKind;
using base::fail;

class SingleRank final : public Ranks {
 public:
  int rank() const override { return 0; }
  int world() const override { return 1; }
  std::vector<Bytes> gather(std::span<const std::byte> bytes, double) override {
    return {Bytes(bytes.begin(), bytes.end())};
  }
};

// In front of what a rank gives: whether it failed (then a reason follows), and in which exchange it is.
struct Head {
  uint64_t failed = 0;
  uint64_t exchange = 0;
};

Bytes message(const Head& head, const void* data, size_t bytes) {
  Bytes all(sizeof head + bytes);
  std::memcpy(all.data(), &head, sizeof head);
  if (bytes != 0) std::memcpy(all.data() + sizeof head, data, bytes);
  return all;
}

struct Outcome {
  Bytes bytes;
  std::exception_ptr error;
  std::string reason;
};

Outcome run(const std::function<Bytes()>& work) {
  Outcome outcome;
  try {
    outcome.bytes = work();
  } catch (const std::exception& error) {
    outcome.error = std::current_exception();
    outcome.reason = error.what();
  } catch (...) {
    outcome.error = std::current_exception();
    outcome.reason = "an unknown exception";
  }
  return outcome;
}

}  // namespace

Bytes bytes_of(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}
Bytes bytes_of(std::span<const uint64_t> words) {
  const auto bytes = std::as_bytes(words);
  return {bytes.begin(), bytes.end()};
}
std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::vector<uint64_t> words_of(const Bytes& bytes) {
  SLUICE_CHECK(bytes.size() % sizeof(uint64_t) == 0, "a message that is no list of words");
  std::vector<uint64_t> words(bytes.size() / sizeof(uint64_t));
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

std::vector<Bytes> Ranks::exchange(std::string_view what, const std::function<Bytes()>& work, double seconds) {
  Outcome own = run(work);
  if (world() == 1) {
    if (own.error) std::rethrow_exception(own.error);
    return {std::move(own.bytes)};
  }
  const Head head{own.error != nullptr, base::xxh3(what.data(), what.size())};
  std::vector<Bytes> all;
  try {
    all = gather(own.error ? message(head, own.reason.data(), own.reason.size())
                           : message(head, own.bytes.data(), own.bytes.size()),
                 seconds);
  } catch (...) {
    if (own.error) std::rethrow_exception(own.error);  // it tells more than that the others have gone
    throw;
  }
  if (own.error) std::rethrow_exception(own.error);
  for (size_t r = 0; r < all.size(); ++r) {
    SLUICE_CHECK(all[r].size() >= sizeof head, "a rank's message is cut");
    Head other;
    std::memcpy(&other, all[r].data(), sizeof other);
    all[r].erase(all[r].begin(), all[r].begin() + sizeof other);
    if (other.failed != 0)
      fail(ErrorKind::peer, "rank {} failed: {}", r, text_of(all[r]));
    SLUICE_CHECK(other.exchange == head.exchange,
                 fmt::format("rank {} is elsewhere than rank {}, which is at \"{}\"", r, rank(), what));
  }
  return all;
}

void Ranks::agree(std::string_view what, const std::function<void()>& work, double seconds) {
  exchange(
      what,
      [&] {
        work();
        return Bytes();
      },
      seconds);
}

Bytes Ranks::from_first(std::string_view what, const std::function<Bytes()>& work, double seconds) {
  return std::move(exchange(what, [&] { return rank() == 0 ? work() : Bytes(); }, seconds).front());
}

void Ranks::on_first(std::string_view what, const std::function<void()>& work, double seconds) {
  agree(
      what,
      [&] {
        if (rank() == 0) work();
      },
      seconds);
}

Ranks& single_rank() {
  static SingleRank single;
  return single;
}

}  // namespace sluice::offload
