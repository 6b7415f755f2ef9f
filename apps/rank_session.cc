#include "apps/rank_session.h"

#include <utility>

namespace sluice::apps {

RankSession::RankSession(const comm::LaunchEnvironment& launch) : launch_(launch) {
  if (!several()) return;
  meeting_ = comm::meet(launch);
  control_ = meeting_.control.get();
}

std::string RankSession::from_first(const std::string& text) {
  return several() ? control_->gather(comm::Topic::start, first() ? text : std::string()).front() : text;
}

std::vector<std::string> RankSession::from_all(const std::string& text) {
  return several() ? control_->gather(comm::Topic::close, text) : std::vector<std::string>{text};
}

std::unique_ptr<comm::Comm> RankSession::make_comm(const comm::CommOptions& options) {
  handed_over_ = true;
  return comm::make_comm(std::move(meeting_), options);
}

void RankSession::connect(engine::TrainerOptions& options) {
  if (!several()) return;
  options.plan.rank = static_cast<uint32_t>(launch_.rank);
  options.runtime.device_index = launch_.local_rank;
  options.connect = [this](const comm::CommOptions& o) { return make_comm(o); };
}

// What another rank has told needs not be told again.
void RankSession::tell(Channel channel, base::ErrorKind kind, const char* reason) noexcept {
  const bool there = control_ != nullptr && handed_over_ == (channel == Channel::of_comm);
  if (there && kind != base::ErrorKind::peer) control_->fail(kind, reason);
}

}  // namespace sluice::apps
