#include "offload/store_record.h"

#include <random>

#include "offload/store_bytes.h"

namespace sluice::offload {
namespace {

constexpr uint64_t kRecordMagic = bytes::magic("SLUICREC");
constexpr size_t kMetaAt = 128;

}  // namespace

namespace bytes {

void put_meta(std::span<std::byte, kPageBytes> page, size_t offset, const StepMeta& meta) {
  put(page, offset + 0, meta.step);
  put(page, offset + 8, meta.samples);
  put(page, offset + 16, meta.tokens);
  put(page, offset + 24, meta.seed);
  put(page, offset + 32, meta.skipped);
  put(page, offset + 40, meta.lr);
  put(page, offset + 48, meta.loss_scale);
  put(page, offset + 56, meta.good_steps);
  put(page, offset + 64, meta.hysteresis);
}

StepMeta get_meta(std::span<const std::byte, kPageBytes> page, size_t offset) {
  StepMeta meta;
  meta.step = get<uint64_t>(page, offset + 0);
  meta.samples = get<uint64_t>(page, offset + 8);
  meta.tokens = get<uint64_t>(page, offset + 16);
  meta.seed = get<uint64_t>(page, offset + 24);
  meta.skipped = get<uint64_t>(page, offset + 32);
  meta.lr = get<double>(page, offset + 40);
  meta.loss_scale = get<double>(page, offset + 48);
  meta.good_steps = get<uint64_t>(page, offset + 56);
  meta.hysteresis = get<uint64_t>(page, offset + 64);
  return meta;
}

}  // namespace bytes

Page encode_record(const Record& record) {
  Page page{};
  bytes::put(page, 0, kRecordMagic);
  bytes::put(page, 8, kStoreVersion);
  bytes::put(page, 12, record.slot);
  bytes::put(page, 16, record.uuid);
  bytes::put(page, 32, record.seq);
  bytes::put(page, 40, record.meta.step);
  bytes::put(page, 48, record.gen);
  bytes::put(page, 56, record.root);
  bytes::put(page, 64, record.layout_hash);
  bytes::put(page, 72, record.world);
  bytes::put(page, 76, record.flags);
  bytes::put_meta(page, kMetaAt, record.meta);
  bytes::seal(page);
  return page;
}

PageState decode_record(std::span<const std::byte, kPageBytes> page, Record* out) {
  const PageState state = bytes::check(page, kRecordMagic);
  if (state != PageState::valid) return state;
  out->slot = bytes::get<uint32_t>(page, 12);
  out->uuid = bytes::get<Uuid>(page, 16);
  out->seq = bytes::get<uint64_t>(page, 32);
  out->gen = bytes::get<uint64_t>(page, 48);
  out->root = bytes::get<uint64_t>(page, 56);
  out->layout_hash = bytes::get<uint64_t>(page, 64);
  out->world = bytes::get<uint32_t>(page, 72);
  out->flags = bytes::get<uint32_t>(page, 76);
  out->meta = bytes::get_meta(page, kMetaAt);
  return bytes::get<uint64_t>(page, 40) == out->meta.step ? PageState::valid : PageState::damaged;
}

Uuid make_uuid() {
  std::random_device random;
  Uuid uuid;
  for (std::byte& b : uuid) b = static_cast<std::byte>(random() & 0xff);
  return uuid;
}

std::string to_string(const Uuid& uuid) {
  std::string text;
  for (std::byte b : uuid) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

bool parse_uuid(const std::string& text, Uuid* out) {
  if (text.size() != 2 * out->size()) return false;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  for (size_t i = 0; i < out->size(); ++i) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    (*out)[i] = static_cast<std::byte>(high * 16 + low);
  }
  return true;
}

}  // namespace sluice::offload
