#include "engine/comm/socket.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace sluice::comm {
namespace {

using base::ErrorKind;
using base::fail;

void set_option(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof value); }

// Small frames must not wait for more to send.
void prepare(int fd) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

bool bind_to(int fd, int family, uint16_t port, bool loopback) {
  sockaddr_storage address{};
  socklen_t size = 0;
  if (family == AF_INET6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
    v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = loopback ? in6addr_loopback : in6addr_any};
    size = sizeof v6;
    set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);  // IPv4 too
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address);
    v4 = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY)}};
    size = sizeof v4;
  }
  return bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0;
}

Socket try_connect(const addrinfo& to, double seconds, std::string* why) {
  Socket socket(::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return *why = std::strerror(errno), Socket();
  prepare(socket.fd());
  int error = 0;
  if (connect(socket.fd(), to.ai_addr, to.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return *why = std::strerror(errno), Socket();
    pollfd wait{socket.fd(), POLLOUT, 0};
    if (poll(&wait, 1, static_cast<int>(seconds * 1e3)) <= 0) return *why = "no answer", Socket();
    socklen_t size = sizeof error;
    getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error != 0) return *why = std::strerror(error), Socket();
  return socket;
}

}  // namespace

void Socket::close() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

// Loopback is IPv4's: what "127.0.0.1" reaches. Other listeners take both families where the system has IPv6.
Socket listen_on(uint16_t port, bool loopback) {
  for (const int family : {AF_INET6, AF_INET}) {
    if (loopback && family == AF_INET6) continue;
    Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) continue;
    prepare(socket.fd());
    set_option(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (bind_to(socket.fd(), family, port, loopback) && listen(socket.fd(), SOMAXCONN) == 0) return socket;
    if (errno == EADDRINUSE)
      fail(ErrorKind::config, "port {} of this host is in use by another program, perhaps another run; set MASTER_PORT to a free one on all "
           "ranks", port);
    if (errno == EACCES) fail(ErrorKind::config, "port {}: permission denied; set MASTER_PORT to one above 1023 on all ranks", port);
  }
  fail(ErrorKind::config, "cannot listen on port {}: {}", port, std::strerror(errno));
}

uint16_t port_of(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    fail(ErrorKind::bug, "getsockname: {}", std::strerror(errno));
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

Socket connect_to(const std::string& host, uint16_t port, double seconds, std::string* why) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0)
    return *why = gai_strerror(error), Socket();
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  for (const addrinfo* to = found; to != nullptr; to = to->ai_next)
    if (Socket socket = try_connect(*to, seconds, why)) return socket;
  return {};
}

Socket accept_from(const Socket& listener) {
  Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (socket) prepare(socket.fd());
  return socket;
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

std::vector<std::string> own_addresses() {
  std::vector<std::string> all;
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) == 0 && name[0] != 0) all.emplace_back(name);
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return all;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(found, freeifaddrs);
  std::vector<std::string> loopback;
  for (const ifaddrs* i = found; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6)) continue;
    const socklen_t size = i->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    char text[NI_MAXHOST];
    if (getnameinfo(i->ifa_addr, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    (is_loopback(text) ? loopback : all).emplace_back(text);
  }
  all.insert(all.end(), loopback.begin(), loopback.end());
  return all;
}

std::optional<size_t> send_some(const Socket& socket, std::span<const std::byte> bytes) {
  for (;;) {
    const ssize_t moved = send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (moved >= 0) return static_cast<size_t>(moved);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return std::nullopt;
  }
}

std::optional<size_t> receive_some(const Socket& socket, std::span<std::byte> bytes) {
  for (;;) {
    const ssize_t moved = recv(socket.fd(), bytes.data(), bytes.size(), 0);
    if (moved > 0) return static_cast<size_t>(moved);
    if (moved == 0) return std::nullopt;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return std::nullopt;
  }
}

}  // namespace sluice::comm
