// Token files: documents as token ids, not packed. Bytes: docs/token_file.md.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/plain_file.h"

namespace sluice::engine {

// What a model asks of a token file.
struct TokenExpectation {
  uint64_t vocab = 0;                 // of the model; a greater id is an error. 0: not asked
  std::optional<uint64_t> tokenizer;  // its hash; empty: the model has no tokenizer.json, nothing is asked
  std::string model;                  // for messages
};
// Of a Hugging Face folder: its vocabulary, and the XXH3-64 of its tokenizer.json.
TokenExpectation expect_tokens_of(const std::filesystem::path& model_folder, uint64_t vocab);

// Move-only; all members may be called from several threads at once. Offsets are in RAM (8 bytes a document),
// ids are read when asked for. Errors: Error(data).
class TokenFile {
 public:
  // Reads the whole file once and checks everything: header, checksum, offsets, every id and mask entry.
  static TokenFile open(const std::filesystem::path& path, const TokenExpectation& expected = {});

  const std::filesystem::path& path() const { return file_.path(); }
  uint64_t vocab() const { return vocab_; }
  uint64_t tokens() const { return offsets_.back(); }
  uint64_t documents() const { return offsets_.size() - 1; }
  uint64_t tokenizer() const { return tokenizer_; }
  bool masked() const { return masked_; }
  uint64_t begin(uint64_t document) const { return offsets_[document]; }
  uint64_t length(uint64_t document) const { return offsets_[document + 1] - offsets_[document]; }

  // Token ids [first, first + out.size()) of the file.
  void read(uint64_t first, std::span<int32_t> out) const;
  // Mask of the same tokens; all 1 without a mask. 0: the token is read but not predicted.
  void read_mask(uint64_t first, std::span<uint8_t> out) const;

 private:
  void check_body(uint64_t tokens, uint64_t checksum, const TokenExpectation& expected);

  PlainFile file_;
  uint64_t vocab_ = 0, tokenizer_ = 0;
  uint64_t id_bytes_ = 2, ids_at_ = 0, mask_at_ = 0;
  bool masked_ = false;
  std::vector<uint64_t> offsets_;
};

// Tokens of a file by its header alone, which is checked; for plans, where reading the whole file would take too long. Error(data).
uint64_t count_tokens(const std::filesystem::path& path);

}  // namespace sluice::engine
