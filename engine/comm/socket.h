// TCP sockets that do not block.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sluice::comm {

// Owns a file descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close() noexcept;
  int release() { return std::exchange(fd_, -1); }  // to another owner

 private:
  int fd_ = -1;
};

// Port 0: any free one. loopback: reachable from this host only. Error(config): the port is in use.
Socket listen_on(uint16_t port, bool loopback);
uint16_t port_of(const Socket& socket);
// One attempt, at most `seconds`. On failure no socket, and why.
Socket connect_to(const std::string& host, uint16_t port, double seconds, std::string* why);
// A waiting connection, or none.
Socket accept_from(const Socket& listener);

bool is_loopback(const std::string& host);
// Under which other hosts may reach this one: its name and its addresses; loopback last.
std::vector<std::string> own_addresses();

// What has been moved; 0: would block; no value: the other side has gone.
std::optional<size_t> send_some(const Socket& socket, std::span<const std::byte> bytes);
std::optional<size_t> receive_some(const Socket& socket, std::span<std::byte> bytes);

}  // namespace sluice::comm
