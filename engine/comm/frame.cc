#include "engine/comm/frame.h"

#include <cstring>
#include <span>

namespace sluice::comm {
namespace {

constexpr size_t kHeader = sizeof(FrameHeader);
constexpr uint64_t kLargest = uint64_t{1} << 32;  // more is garbage

}  // namespace

static_assert(kHeader == 32);

Frame text_frame(FrameKind kind, const std::string& text) {
  Frame frame;
  frame.header.kind = kind;
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  frame.payload.assign(bytes, bytes + text.size());
  return frame;
}

std::string text_of(const Frame& frame) {
  return {reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size()};
}

void FrameLink::put(const Frame& frame) {
  FrameHeader header = frame.header;
  header.bytes = frame.payload.size();
  std::vector<std::byte> bytes(kHeader + frame.payload.size());
  std::memcpy(bytes.data(), &header, kHeader);
  if (!frame.payload.empty()) std::memcpy(bytes.data() + kHeader, frame.payload.data(), frame.payload.size());
  out_.push_back(std::move(bytes));
}

bool FrameLink::flush() {
  while (!out_.empty()) {
    const auto moved = send_some(socket_, std::span(out_.front()).subspan(sent_));
    if (!moved) return false;
    if (*moved == 0) return true;
    sent_ += *moved;
    if (sent_ < out_.front().size()) continue;
    out_.pop_front();
    sent_ = 0;
  }
  return true;
}

bool FrameLink::receive() {
  for (;;) {
    std::span<std::byte> target;
    if (received_ < kHeader)
      target = std::as_writable_bytes(std::span(&header_, 1)).subspan(received_);
    else
      target = std::span(payload_).subspan(received_ - kHeader);
    if (target.empty()) return true;  // a whole frame
    const auto moved = receive_some(socket_, target);
    if (!moved) return false;
    if (*moved == 0) return true;
    received_ += *moved;
    if (received_ != kHeader) continue;
    broken_ = header_.magic != FrameHeader{}.magic || header_.bytes > kLargest;
    if (broken_) return false;
    payload_.resize(header_.bytes);
  }
}

std::optional<Frame> FrameLink::get(bool* gone) {
  *gone = broken_ || !receive();
  if (*gone || received_ < kHeader || received_ - kHeader < payload_.size()) return std::nullopt;
  Frame frame{header_, std::move(payload_)};
  payload_.clear();
  received_ = 0;
  return frame;
}

}  // namespace sluice::comm
