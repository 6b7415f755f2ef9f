#include "engine/comm/control.h"

#include <cstring>

#include "engine/comm/control_service.h"
#include "engine/comm/rendezvous.h"

namespace sluice::comm {
namespace {

using base::ErrorKind;

constexpr double kReason = 2.0;  // seconds that the reason of a lost connection may take to arrive

std::string describe(const Failure& failure, int self) {
  const std::string kind = failure.kind == ErrorKind::peer ? "" : base::to_string(failure.kind) + ": ";
  if (failure.rank != self) return fmt::format("rank {}: {}{}", failure.rank, kind, failure.reason);
  return fmt::format("this rank, {}, has failed: {}{}", self, kind, failure.reason);
}

}  // namespace

struct Control::Impl {
  explicit Impl(const ControlOptions& o) : options(o) {
    SLUICE_CHECK(o.world >= 1 && o.rank >= 0 && o.rank < o.world, "rank and world");
    if (o.world > 1) service = std::make_unique<ControlService>(o, meet(o));
  }
  const ControlOptions options;
  std::unique_ptr<ControlService> service;  // null in a world of one
};

Control::Control(const ControlOptions& options) : impl_(std::make_unique<Impl>(options)) {}

Control::~Control() {
  if (!closed())
    fail(ErrorKind::peer, "it ended before the run did, without saying why");
}

int Control::rank() const { return impl_->options.rank; }
int Control::world() const { return impl_->options.world; }
double Control::deadline() const { return impl_->options.deadline; }
const std::string& Control::job() const { return impl_->options.job; }

std::vector<std::vector<std::byte>> Control::gather(Topic topic, std::span<const std::byte> bytes, double deadline) {
  std::vector<std::byte> own(bytes.begin(), bytes.end());
  if (!impl_->service) return {std::move(own)};
  auto parts = impl_->service->exchange(topic, std::move(own), deadline > 0 ? deadline : this->deadline());
  if (parts.empty()) check();
  return parts;
}

std::vector<uint64_t> Control::gather(Topic topic, uint64_t value, double deadline) {
  std::vector<uint64_t> values;
  for (const auto& part : gather(topic, std::as_bytes(std::span(&value, 1)), deadline)) {
    SLUICE_CHECK(part.size() == sizeof value, "ranks exchange different things");
    std::memcpy(&values.emplace_back(), part.data(), sizeof value);
  }
  return values;
}

std::vector<std::vector<double>> Control::gather(Topic topic, std::span<const double> values, double deadline) {
  std::vector<std::vector<double>> all;
  for (const auto& part : gather(topic, std::as_bytes(values), deadline)) {
    auto& numbers = all.emplace_back(part.size() / sizeof(double));
    if (!part.empty()) std::memcpy(numbers.data(), part.data(), part.size());
  }
  return all;
}

std::vector<std::string> Control::gather(Topic topic, const std::string& text, double deadline) {
  std::vector<std::string> all;
  for (const auto& part : gather(topic, std::as_bytes(std::span(text)), deadline))
    all.emplace_back(reinterpret_cast<const char*>(part.data()), part.size());
  return all;
}

void Control::fail(ErrorKind kind, const std::string& reason) noexcept { fail(Failure{rank(), kind, reason}); }

void Control::fail(const Failure& failure) noexcept {
  try {
    if (impl_->service) impl_->service->fail(failure);
  } catch (...) {  // no memory for the message: the others see the connection end
  }
}

bool Control::failed() const noexcept { return impl_->service && impl_->service->failure().has_value(); }

std::optional<Failure> Control::failure() const { return impl_->service ? impl_->service->failure() : std::nullopt; }

void Control::check() const {
  if (const auto failed = failure()) throw base::Error(ErrorKind::peer, describe(*failed, rank()));
}

void Control::blame(const Failure& guess) noexcept {
  if (!impl_->service) return;
  impl_->service->wait_for_failure(kReason);
  fail(guess);
}

void Control::set_progress(uint64_t begun) noexcept {
  if (impl_->service) impl_->service->set_progress(begun);
}

int Control::laggard() const { return impl_->service ? impl_->service->laggard() : -1; }

void Control::throw_failure(const Failure& guess) {
  blame(guess);
  check();
  throw base::Error(ErrorKind::peer, describe(guess, rank()));
}

std::shared_ptr<void> Control::on_failure(std::function<void()> call) {
  return impl_->service ? impl_->service->on_failure(std::move(call)) : nullptr;
}

bool Control::closed() const noexcept { return !impl_->service || impl_->service->closed(); }

void Control::close() {
  if (!closed()) barrier(Topic::close);
}

}  // namespace sluice::comm
