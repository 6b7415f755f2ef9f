#include "engine/comm/mpi_session.h"

#define OMPI_SKIP_MPICXX
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/error.h"
#include "engine/comm/host_comm.h"
#include "engine/comm/patience.h"
#include "engine/comm/socket.h"

namespace sluice::comm {
namespace {

using base::ErrorKind;

constexpr uint64_t kPiece = 64 << 20;  // bytes of one message: MPI counts in int, and each message done is progress seen
constexpr int kTag = 7;

void check(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, text, &length);
  base::fail(ErrorKind::peer, "{}: {}", call, std::string(text, static_cast<size_t>(length)));
}

// MPI works only inside its calls, so whoever waits must call; but the cores are wanted elsewhere.
class Pause {
 public:
  void take() {
    if (++turns_ < kBusy) return std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(std::min(turns_ - kBusy + 20, 200)));
  }
  void reset() { turns_ = 0; }

 private:
  static constexpr int kBusy = 50;
  int turns_ = 0;
};

class Session final : public MpiSession {
 public:
  Session() {
    int given = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given), "MPI_Init_thread");
    if (given < MPI_THREAD_SERIALIZED)
      base::fail(ErrorKind::config, "this MPI has thread level {}, but MPI_THREAD_SERIALIZED ({}) is needed; use Open MPI as Debian builds it", given,
                 static_cast<int>(MPI_THREAD_SERIALIZED));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &world_);
  }
  // The launcher cleans up what ends without a finalisation.
  ~Session() override {
    if (!orderly_) return;
    MPI_Comm_free(&comm_);
    MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int world() const override { return world_; }
  MPI_Comm comm() const { return comm_; }
  void set_orderly() override { orderly_ = true; }

  void arrange(ControlOptions& options) override {
    options.rank = rank_;
    options.world = world_;
    std::string text;
    if (rank_ == 0 && world_ > 1) {
      Socket listener = listen_on(options.port, false);
      std::random_device random;
      text = fmt::format("{}\nmpi {:08x}{:08x}", port_of(listener), random(), random());
      for (const std::string& host : own_addresses()) text += "\n" + host;
      options.listener = listener.release();
    }
    read(options, broadcast(text, options.connect_deadline));
  }

 private:
  std::string broadcast(std::string text, double deadline) {
    uint64_t size = text.size();
    broadcast(&size, sizeof size, deadline);
    text.resize(size);
    broadcast(text.data(), size, deadline);
    return text;
  }

  void broadcast(void* data, uint64_t bytes, double deadline) {
    MPI_Request request;
    check(MPI_Ibcast(data, static_cast<int>(bytes), MPI_BYTE, 0, comm_, &request), "MPI_Ibcast");
    Patience patience(deadline);
    Pause pause;
    for (int done = 0;;) {
      check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done != 0) return;
      if (patience.over()) base::fail(ErrorKind::peer, "rank {}: not all {} ranks have come within {:.0f} s", rank_, world_, deadline);
      pause.take();
    }
  }

  static void read(ControlOptions& options, const std::string& text) {
    if (text.empty()) return;
    options.hosts.clear();
    std::vector<std::string> lines;
    for (size_t begin = 0, end = 0; begin <= text.size(); begin = end + 1) {
      end = std::min(text.find('\n', begin), text.size());
      lines.push_back(text.substr(begin, end - begin));
    }
    SLUICE_CHECK(lines.size() >= 3);
    options.port = static_cast<uint16_t>(std::stoi(lines[0]));
    options.job = lines[1];
    options.hosts.assign(lines.begin() + 2, lines.end());
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, world_ = 1;
  bool orderly_ = false;
};

class MpiTransport final : public Transport {
 public:
  MpiTransport(std::shared_ptr<MpiSession> session, Control& control)
      : session_(std::static_pointer_cast<Session>(std::move(session))), control_(control) {}
  ~MpiTransport() override {
    if (!control_.failed() && control_.closed()) session_->set_orderly();
  }

  std::string describe() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string version(text, static_cast<size_t>(length));
    return version.substr(0, version.find(','));
  }

  void exchange(std::span<const Parcel> parcels) override {
    std::vector<Message> messages;
    for (const Parcel& p : parcels) add(messages, p, true);
    for (const Parcel& p : parcels) add(messages, p, false);
    std::vector<MPI_Request> requests;
    for (const Message& m : messages) requests.push_back(start(m));
    finish(messages, requests);
  }

 private:
  struct Message {
    int peer;
    bool receive;
    void* data;
    int bytes;
  };

  // At least one message each way, so that both ends notice when they mean different sizes.
  static void add(std::vector<Message>& messages, const Parcel& p, bool receive) {
    const uint64_t bytes = receive ? p.receive_bytes : p.send_bytes;
    std::byte* data = receive ? p.receive : const_cast<std::byte*>(p.send);  // MPI's C interface; it is only read
    for (uint64_t done = 0; done == 0 || done < bytes; done += kPiece)
      messages.push_back({p.peer, receive, data + done, static_cast<int>(std::min(kPiece, bytes - done))});
  }

  MPI_Request start(const Message& m) const {
    MPI_Request request;
    if (m.receive)
      check(MPI_Irecv(m.data, m.bytes, MPI_BYTE, m.peer, kTag, session_->comm(), &request), "MPI_Irecv");
    else
      check(MPI_Isend(m.data, m.bytes, MPI_BYTE, m.peer, kTag, session_->comm(), &request), "MPI_Isend");
    return request;
  }

  void finish(const std::vector<Message>& messages, std::vector<MPI_Request>& requests) {
    std::vector<int> done(requests.size());
    std::vector<MPI_Status> statuses(requests.size());
    Patience patience(control_.deadline());
    Pause pause;
    for (size_t left = requests.size(); left > 0;) {
      int count = 0;
      const int result = MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &count, done.data(), statuses.data());
      if (result != MPI_ERR_IN_STATUS) check_peer(result, messages);
      for (int i = 0; i < count; ++i) {
        const auto at = static_cast<size_t>(i);
        check_status(messages[static_cast<size_t>(done[at])], statuses[at], result == MPI_ERR_IN_STATUS);
      }
      left -= static_cast<size_t>(std::max(count, 0));
      if (count > 0) {
        patience.reset();
        pause.reset();
      } else if (left > 0) {
        control_.check();
        if (patience.over()) give_up(messages, requests);
        pause.take();
      }
    }
  }

  // A failed process shows as an error of MPI; the control channel knows more.
  void check_peer(int result, const std::vector<Message>& messages) {
    if (result == MPI_SUCCESS) return;
    try {
      check(result, "MPI_Testsome");
    } catch (const base::Error& error) {
      control_.throw_failure({messages.front().peer, ErrorKind::peer, error.what()});
    }
  }

  void check_status(const Message& m, const MPI_Status& status, bool errors) {
    if (errors && status.MPI_ERROR != MPI_SUCCESS && status.MPI_ERROR != MPI_ERR_PENDING) {
      if (status.MPI_ERROR == MPI_ERR_TRUNCATE)
        base::fail(ErrorKind::bug, "rank {} sends more than the {} bytes that are expected", m.peer, m.bytes);
      check_peer(status.MPI_ERROR, {m});
    }
    if (!m.receive) return;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    SLUICE_CHECK(bytes == m.bytes, fmt::format("rank {} sends {} bytes where {} are expected", m.peer, bytes, m.bytes));
  }

  [[noreturn]] void give_up(const std::vector<Message>& messages, const std::vector<MPI_Request>& requests) {
    size_t first = 0;  // receives come first: who has not sent
    while (requests[first] == MPI_REQUEST_NULL) ++first;
    control_.throw_failure({messages[first].peer, ErrorKind::peer,
                            fmt::format("rank {} has waited for its data for {:.0f} s", control_.rank(), control_.deadline())});
  }

  const std::shared_ptr<Session> session_;
  Control& control_;
};

}  // namespace

std::shared_ptr<MpiSession> start_mpi() { return std::make_shared<Session>(); }

std::unique_ptr<Comm> make_mpi_comm(std::shared_ptr<MpiSession> session, std::shared_ptr<Control> control, const CommOptions& options) {
  auto transport = std::make_unique<MpiTransport>(std::move(session), *control);
  return make_host_comm(std::move(control), std::move(transport), options);
}

}  // namespace sluice::comm
