#include "engine/token_file.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/hash.h"
#include "base/units.h"

namespace sluice::engine {
namespace {

using base::ErrorKind;
using base::fail;

constexpr uint64_t kHeaderBytes = 64, kHashedHeader = 56;
constexpr uint32_t kVersion = 1, kHasMask = 1;
constexpr uint64_t kPieceBytes = 1 << 20;

struct Header {
  std::array<char, 8> magic;
  uint32_t version, flags;
  uint64_t vocab, tokens, documents, tokenizer, checksum, header_checksum;
};
static_assert(sizeof(Header) == kHeaderBytes);

const char* const kRemedy = "make it again with `sluice prepare`";

uint64_t id_at(const std::byte* ids, uint64_t i, uint64_t width) {
  uint32_t id = 0;
  std::memcpy(&id, ids + i * width, width);  // little endian, like every machine we run on
  return id;
}

PlainFile open_file(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path))
    fail(ErrorKind::data, "cannot open the token file {}: No such file or directory; make it with `sluice prepare`", path.string());
  return PlainFile::open(path, ErrorKind::data);
}

Header read_header(const PlainFile& file) {
  const std::string where = file.path().string();
  Header h{};
  if (file.size() < kHeaderBytes)
    fail(ErrorKind::data, "{} has {} bytes, a token file has at least {}; {}", where, file.size(), kHeaderBytes, kRemedy);
  file.read_at(0, &h, sizeof h);
  if (std::memcmp(h.magic.data(), "SLUICETK", 8) != 0) fail(ErrorKind::data, "{} is not a token file; {}", where, kRemedy);
  if (h.version != kVersion)
    fail(ErrorKind::data, "{} has version {} of the token file format, this program reads {}; {}", where, h.version, kVersion, kRemedy);
  if (base::xxh3(&h, kHashedHeader) != h.header_checksum || (h.flags & ~kHasMask) != 0)
    fail(ErrorKind::data, "the header of {} is damaged; {}", where, kRemedy);
  return h;
}

}  // namespace

uint64_t count_tokens(const std::filesystem::path& path) { return read_header(open_file(path)).tokens; }

TokenExpectation expect_tokens_of(const std::filesystem::path& model_folder, uint64_t vocab) {
  TokenExpectation expected{.vocab = vocab, .tokenizer = {}, .model = model_folder.string()};
  const std::filesystem::path tokenizer = model_folder / "tokenizer.json";
  if (std::filesystem::exists(tokenizer)) {
    const std::string text = read_text_file(tokenizer, ErrorKind::model);
    expected.tokenizer = base::xxh3(text.data(), text.size());
  }
  return expected;
}

TokenFile TokenFile::open(const std::filesystem::path& path, const TokenExpectation& expected) {
  TokenFile file;
  file.file_ = open_file(path);
  const std::string where = path.string();
  const Header h = read_header(file.file_);
  if (expected.tokenizer && *expected.tokenizer != h.tokenizer)
    fail(ErrorKind::data,
         "{} was made with another tokenizer (hash {}) than that of {} ({}); make it again with `sluice "
         "prepare "
         "--tokenizer {}`",
         where, base::hash_hex(h.tokenizer), expected.model, base::hash_hex(*expected.tokenizer),
         expected.model);
  if (h.vocab == 0 || h.vocab > uint64_t{1} << 31)
    fail(ErrorKind::data, "{} has an impossible vocabulary of {}; {}", where, h.vocab, kRemedy);
  if (h.documents == 0 || h.tokens < h.documents)
    fail(ErrorKind::data, "{} holds no text; {}", where, kRemedy);

  file.vocab_ = h.vocab;
  file.tokenizer_ = h.tokenizer;
  file.masked_ = (h.flags & kHasMask) != 0;
  file.id_bytes_ = h.vocab <= 65536 ? 2 : 4;
  const uint64_t per_token = file.id_bytes_ + (file.masked_ ? 1 : 0);
  // 2^48 of either is beyond any file; within it nothing below overflows.
  const bool sane = h.documents < uint64_t{1} << 48 && h.tokens < uint64_t{1} << 48;
  if (const uint64_t need = sane ? kHeaderBytes + 8 * (h.documents + 1) + per_token * h.tokens : UINT64_MAX;
      need != file.file_.size())
    fail(ErrorKind::data, "{} has {} bytes, its header calls for {}; {}", where, file.file_.size(), need,
         kRemedy);
  file.ids_at_ = kHeaderBytes + 8 * (h.documents + 1);
  file.mask_at_ = file.ids_at_ + file.id_bytes_ * h.tokens;
  file.offsets_.resize(h.documents + 1);
  file.check_body(h.tokens, h.checksum, expected);
  return file;
}

void TokenFile::check_body(uint64_t tokens, uint64_t checksum, const TokenExpectation& expected) {
  base::Xxh3 hash;
  file_.read_at(kHeaderBytes, offsets_.data(), offsets_.size() * 8);
  hash.update(offsets_.data(), offsets_.size() * 8);

  std::vector<std::byte> piece(kPieceBytes);
  uint64_t greatest = 0, greatest_mask = 0;
  for (uint64_t at = ids_at_; at < file_.size();) {
    const bool ids = at < mask_at_;
    const uint64_t bytes = std::min(kPieceBytes, (ids ? mask_at_ : file_.size()) - at);
    file_.read_at(at, piece.data(), bytes);
    hash.update(piece.data(), bytes);
    const uint64_t width = ids ? id_bytes_ : 1;
    uint64_t& most = ids ? greatest : greatest_mask;
    for (uint64_t i = 0; i < bytes / width; ++i) most = std::max(most, id_at(piece.data(), i, width));
    at += bytes;
  }
  const std::string where = path().string();
  if (hash.digest() != checksum)
    fail(ErrorKind::data, "{} is damaged: its checksum does not match; {}", where, kRemedy);
  const bool rising =
      std::adjacent_find(offsets_.begin(), offsets_.end(), std::greater_equal<>()) == offsets_.end();
  if (!rising || offsets_.front() != 0 || offsets_.back() != tokens || greatest_mask > 1)
    fail(ErrorKind::data, "{}: the document offsets or the mask are impossible; {}", where, kRemedy);
  if (greatest >= vocab_)
    fail(ErrorKind::data, "{} holds the token id {}, its own vocabulary has {}; {}", where, greatest, vocab_,
         kRemedy);
  if (expected.vocab != 0 && greatest >= expected.vocab)
    fail(ErrorKind::data,
         "{} holds the token id {}, but the vocabulary of {} has {}; use the model's own tokenizer", where,
         greatest, expected.model, expected.vocab);
}

void TokenFile::read(uint64_t first, std::span<int32_t> out) const {
  SLUICE_CHECK(first <= tokens() && out.size() <= tokens() - first);
  if (id_bytes_ == 4) return file_.read_at(ids_at_ + 4 * first, out.data(), 4 * out.size());
  // The narrow ids are read into the upper half of the output, then widened from the front.
  auto* narrow = reinterpret_cast<std::byte*>(out.data()) + 2 * out.size();
  file_.read_at(ids_at_ + 2 * first, narrow, 2 * out.size());
  for (uint64_t i = 0; i < out.size(); ++i) out[i] = static_cast<int32_t>(id_at(narrow, i, 2));
}

void TokenFile::read_mask(uint64_t first, std::span<uint8_t> out) const {
  SLUICE_CHECK(first <= tokens() && out.size() <= tokens() - first);
  if (masked_)
    file_.read_at(mask_at_ + first, out.data(), out.size());
  else
    std::fill(out.begin(), out.end(), uint8_t{1});
}

}  // namespace sluice::engine
