// The thread that serves a rank's control channel. Internal to Control.
#pragma once
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/control.h"
#include "engine/comm/exchange_table.h"
#include "engine/comm/frame.h"

namespace sluice::comm {

// Thread-safe.
class ControlService {
 public:
  using Parts = std::vector<std::vector<std::byte>>;

  ControlService(const ControlOptions& options, std::vector<FrameLink> links);
  ~ControlService();

  Parts exchange(Topic topic, std::vector<std::byte> bytes, double deadline);
  void fail(const Failure& failure);
  std::optional<Failure> failure() const;
  // Until a failure is known, at most so long.
  void wait_for_failure(double seconds);
  bool closed() const;
  void set_progress(uint64_t begun);
  int laggard() const;
  std::shared_ptr<void> on_failure(std::function<void()> call);

 private:
  struct Link {
    int rank;
    FrameLink frames;
    Patience silence;
    uint64_t progress = 0;
    bool gone = false;
  };

  void loop();
  void poll_links(int milliseconds);
  void serve(Link& link);                       // mutex_ held, as below
  void handle(Link& link, Frame frame);
  void contribute(const ExchangeKey& key, int rank, std::vector<std::byte> bytes, double deadline);
  void finish(const ExchangeKey& key, Parts parts);
  void set_failure(const Failure& failure);
  void send_failure(FrameLink& link) const;
  void check_silence();
  void put_all(const Frame& frame);
  bool drained() const;
  void call_back(std::unique_lock<std::mutex>& lock);
  void say_goodbye();
  void wake() const;

  const ControlOptions options_;
  const Socket wake_;  // an eventfd

  mutable std::mutex mutex_;  // guards all below
  mutable std::condition_variable changed_;
  std::vector<Link> links_;
  ExchangeTable table_;  // rank 0
  std::map<uint8_t, uint64_t> next_;  // by topic: number of the next exchange
  std::map<ExchangeKey, Parts> results_;
  std::optional<Failure> failure_;
  std::vector<std::weak_ptr<std::function<void()>>> callbacks_;
  std::vector<std::weak_ptr<std::function<void()>>> due_;
  uint64_t progress_ = 0;
  bool closed_ = false;
  bool stop_ = false;
  std::mutex calling_;  // held while callbacks run

  std::thread thread_;  // last
};

}  // namespace sluice::comm
