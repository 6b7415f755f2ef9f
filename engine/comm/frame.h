// Messages of the control channel, and the connection that carries them. All ranks run the same program on machines of the same byte order.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/socket.h"

namespace sluice::comm {

enum class FrameKind : uint8_t { hello, welcome, refused, contribution, result, failure, alive };

struct FrameHeader {
  uint32_t magic = 0x736c6331;  // "slc1": changes with the format
  FrameKind kind = FrameKind::alive;
  uint8_t topic = 0;
  uint16_t exit_code = 0;   // failure
  int32_t rank = 0;         // hello: of the sender; failure: of the one that failed
  float deadline = 0;       // contribution: seconds
  uint64_t sequence = 0;    // contribution, result: number within the topic. hello: world
  uint64_t bytes = 0;       // that follow
};

struct Frame {
  FrameHeader header;
  std::vector<std::byte> payload;
};

Frame text_frame(FrameKind kind, const std::string& text);
std::string text_of(const Frame& frame);

// A connection that carries frames. Not thread-safe.
class FrameLink {
 public:
  FrameLink() = default;
  explicit FrameLink(Socket socket) : socket_(std::move(socket)) {}

  const Socket& socket() const { return socket_; }
  bool open() const { return static_cast<bool>(socket_); }
  void close() { socket_.close(); }
  Socket take() { return std::move(socket_); }  // whole frames only have been read

  void put(const Frame& frame);  // queued
  bool pending() const { return !out_.empty(); }
  bool flush();  // sends what it can. False: the other side has gone
  // Reads what there is; the next whole frame, if any. *gone: the other side has gone (or speaks something else), and no whole frame is
  // left.
  std::optional<Frame> get(bool* gone);

 private:
  bool receive();  // false: gone

  Socket socket_;
  std::deque<std::vector<std::byte>> out_;
  size_t sent_ = 0;  // of out_.front()
  FrameHeader header_;
  std::vector<std::byte> payload_;
  size_t received_ = 0;  // of header and payload together
  bool broken_ = false;
};

}  // namespace sluice::comm
