#include "engine/packing.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "base/hash.h"
#include "base/units.h"

namespace sluice::engine {
namespace {

using base::ErrorKind;
using base::fail;

constexpr int32_t kUntrained = -100;

// SplitMix64: small, and the same everywhere, unlike the standard library's distributions and shuffle.
class Random {
 public:
  explicit Random(uint64_t state) : state_(state) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Uniform in [0, bound): the product's upper half, values that would be favoured are drawn again.
  uint64_t below(uint64_t bound) {
    for (;;) {
      const auto product = static_cast<unsigned __int128>(next()) * bound;
      if (static_cast<uint64_t>(product) >= (0 - bound) % bound) return static_cast<uint64_t>(product >> 64);
    }
  }

 private:
  uint64_t state_;
};

}  // namespace

Packing::Packing(const TokenFile& file, const PackingOptions& options) : file_(file), options_(options) {
  if (options_.sequence < 2)
    fail(ErrorKind::config, "data.sequence_length is {}, it must be at least 2", options_.sequence);
  samples_per_epoch_ = options_.shuffle ? file_.tokens() / options_.sequence
                                        : base::ceil_div(file_.tokens(), options_.sequence);
  if (samples_per_epoch_ == 0)
    fail(ErrorKind::data,
         "{} has {} tokens, fewer than one row of data.sequence_length {}; use more text or shorter rows",
         file_.path().string(), file_.tokens(), options_.sequence);
}

std::shared_ptr<const Packing::Order> Packing::order(uint64_t epoch) const {
  const std::lock_guard lock(mutex_);
  if (!options_.shuffle) epoch = 0;
  std::shared_ptr<const Order>& kept = orders_[epoch % 2];
  if (kept != nullptr && kept->epoch == epoch) return kept;

  auto made = std::make_shared<Order>();
  made->epoch = epoch;
  const uint64_t n = file_.documents();
  made->begins.resize(n + 1);
  if (options_.shuffle) {
    made->documents.resize(n);
    std::iota(made->documents.begin(), made->documents.end(), uint64_t{0});
    const std::array<uint64_t, 2> key = {options_.seed, epoch};
    Random random(base::xxh3(key.data(), sizeof key));
    for (uint64_t i = n; i > 1; --i) std::swap(made->documents[i - 1], made->documents[random.below(i)]);
  }
  for (uint64_t i = 0; i < n; ++i)
    made->begins[i + 1] = made->begins[i] + file_.length(options_.shuffle ? made->documents[i] : i);
  return kept = std::move(made);
}

std::vector<Packing::Piece> Packing::pieces(uint64_t number) const {
  const std::shared_ptr<const Order> order_of = order(number / samples_per_epoch_);
  const std::vector<uint64_t>& begins = order_of->begins;
  uint64_t at = number % samples_per_epoch_ * options_.sequence;
  const uint64_t end = std::min(at + options_.sequence, file_.tokens());
  uint64_t i = static_cast<uint64_t>(std::upper_bound(begins.begin(), begins.end(), at) - begins.begin()) - 1;
  std::vector<Piece> found;
  for (; at < end; ++i) {
    const uint64_t document = options_.shuffle ? order_of->documents[i] : i;
    const uint64_t length = std::min(begins[i + 1], end) - at;
    found.push_back({file_.begin(document) + (at - begins[i]), static_cast<uint32_t>(length)});
    at += length;
  }
  return found;
}

Sample Packing::sample(uint64_t number) const {
  Sample s;
  s.tokens.assign(options_.sequence, 0);
  s.targets.assign(options_.sequence, kUntrained);
  s.positions.assign(options_.sequence, 0);
  std::vector<uint8_t> mask;
  uint32_t at = 0;
  for (const Piece& piece : pieces(number)) {
    s.starts.push_back(static_cast<int32_t>(at));
    const std::span<int32_t> tokens = std::span(s.tokens).subspan(at, piece.length);
    file_.read(piece.first, tokens);
    mask.resize(piece.length);
    file_.read_mask(piece.first, mask);
    for (uint32_t i = 0; i < piece.length; ++i) {
      s.positions[at + i] = static_cast<int32_t>(i);
      if (i + 1 == piece.length || mask[i + 1] == 0) continue;
      s.targets[at + i] = tokens[i + 1];
      ++s.trained;
    }
    at += piece.length;
  }
  if (at < options_.sequence) {  // evaluation's last row: the filling is a piece of its own
    s.starts.push_back(static_cast<int32_t>(at));
    std::iota(s.positions.begin() + at, s.positions.end(), 0);
  }
  return s;
}

uint64_t Packing::trained(uint64_t number) const {
  uint64_t count = 0;
  std::vector<uint8_t> mask;
  for (const Piece& piece : pieces(number)) {
    if (!file_.masked()) {
      count += piece.length - 1;
      continue;
    }
    mask.resize(piece.length);
    file_.read_mask(piece.first, mask);
    count += static_cast<uint64_t>(std::count(mask.begin() + 1, mask.end(), 1));
  }
  return count;
}

}  // namespace sluice::engine
