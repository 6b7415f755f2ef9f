#include "apps/rank_session.h"

#include "apps/failure.h"

namespace sluice::apps {

using base::ErrorKind;

RankSession::RankSession(const comm::LaunchEnvironment& launch) : launch_(launch) {
  if (several()) meeting_ = comm::meet(launch);
}

std::string RankSession::from_first(const std::string& text) {
  return several() ? meeting_.control->gather(comm::Topic::start, first() ? text : std::string()).front() : text;
}

std::vector<std::string> RankSession::from_all(const std::string& text) {
  return several() ? meeting_.control->gather(comm::Topic::close, text) : std::vector<std::string>{text};
}

std::unique_ptr<comm::Comm> RankSession::make_comm(const comm::CommOptions& options) {
  auto comm = comm::make_comm(meeting_, options);
  transport_ = comm->describe();
  return comm;
}

void RankSession::connect(engine::TrainerOptions& options) {
  if (!several()) return;
  options.plan.rank = static_cast<uint32_t>(launch_.rank);
  options.runtime.device_index = launch_.local_rank;
  options.connect = [this](const comm::CommOptions& o) { return make_comm(o); };
}

void RankSession::rethrow() {
  const base::Error error = current_error();
  if (!several()) throw;
  comm::Control& control = *meeting_.control;
  if (error.kind() != ErrorKind::peer) {
    control.fail(error.kind(), error.what());
    throw;
  }
  // Some learn of it by another way than the channel, which the kind takes.
  control.blame({launch_.rank, ErrorKind::peer, error.what()});
  const std::optional<comm::Failure> failure = control.failure();
  throw PeerError(failure ? failure->kind : ErrorKind::peer, error.what());
}

}  // namespace sluice::apps
