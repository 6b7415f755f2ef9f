// Packs documents into rows of equal length. A row is a function of (token file, seed, sequence length, its
// number): there is no state to save and nothing to replay.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/token_file.h"

namespace sluice::engine {

struct PackingOptions {
  uint64_t seed = 0;
  uint32_t sequence = 0;  // tokens in a row
  // true: each epoch has its own order of documents, and its tokens beyond the last full row are left out.
  // false: documents in file order, and the last row is filled up with untrained token 0, so that evaluation
  // sees everything.
  bool shuffle = true;
};

struct Sample {
  std::vector<int32_t> tokens;  // [sequence]
  std::vector<int32_t>
      targets;  // the next token of the same piece, or -100: the piece's last token, or masked
  std::vector<int32_t> positions;  // restart at 0 with every piece
  std::vector<int32_t> starts;     // where pieces begin; the first is 0
  uint64_t trained = 0;            // targets that are not -100
};

// A document that crosses the end of a row is cut: the next row begins with the rest of it as a piece of its
// own. Thread-safe. The token file must outlive this.
class Packing {
 public:
  // Error(data) when the file has too few tokens for one row, Error(config) when sequence is below 2.
  Packing(const TokenFile& file, const PackingOptions& options);

  // The same in every epoch.
  uint64_t samples_per_epoch() const { return samples_per_epoch_; }
  uint64_t samples_per_epoch(uint64_t /*epoch*/) const { return samples_per_epoch_; }
  const PackingOptions& options() const { return options_; }
  const TokenFile& file() const { return file_; }

  // number counts over all epochs.
  Sample sample(uint64_t number) const;
  // Sample::trained without the tokens; reads nothing unless the file has a mask.
  uint64_t trained(uint64_t number) const;

 private:
  // Documents of an epoch in their order, and where each begins in it.
  struct Order {
    uint64_t epoch = 0;
    std::vector<uint64_t> documents;  // empty: file order
    std::vector<uint64_t> begins;     // one more than documents
  };
  struct Piece {
    uint64_t first;  // token of the file
    uint32_t length;
  };
  std::shared_ptr<const Order> order(uint64_t epoch) const;
  std::vector<Piece> pieces(uint64_t number) const;

  const TokenFile& file_;
  const PackingOptions options_;
  uint64_t samples_per_epoch_ = 0;
  mutable std::mutex mutex_;                                    // guards orders_
  mutable std::array<std::shared_ptr<const Order>, 2> orders_;  // the latest of even and of odd epochs
};

}  // namespace sluice::engine
