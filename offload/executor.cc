#include "offload/executor.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "base/error.h"
#include "gpu/stream_thread.h"
#include "offload/executor_clock.h"
#include "offload/executor_dependencies.h"
#include "offload/executor_mailbox.h"

namespace sluice::offload {
namespace {

using base::Error;
using base::ErrorKind;
using base::fail;

constexpr uint64_t kLive = Dependencies::kLivePeriods;
constexpr uint64_t kSlots = 2 * kLive - 1;  // live periods, and those that edges from them reach
constexpr uint64_t kNoPeriod = std::numeric_limits<uint64_t>::max();

// State transfers share the width of their lane with the weights', which go first.
constexpr bool yields_to_lane_before(size_t lane) {
  static_assert(static_cast<size_t>(Lane::disk_weights) + 1 == static_cast<size_t>(Lane::disk_state));
  static_assert(static_cast<size_t>(Lane::disk_write_weights) + 1 == static_cast<size_t>(Lane::disk_write_state));
  return lane == static_cast<size_t>(Lane::disk_state) || lane == static_cast<size_t>(Lane::disk_write_state);
}

struct Failure {
  std::exception_ptr error;
  uint32_t op;
  uint64_t period;
};

[[noreturn]] void rethrow_named(const std::exception_ptr& error, const std::string& where) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    throw Error(e.kind(), where + ": " + e.what());
  } catch (const std::bad_alloc&) {
    fail(ErrorKind::host_memory, "{}: out of memory", where);
  } catch (const std::exception& e) {
    fail(ErrorKind::bug, "{}: {}", where, e.what());
  } catch (...) {
    fail(ErrorKind::bug, "{}: unknown exception", where);
  }
}

// Everything about the operations of one period; reused for a later one.
struct Period {
  std::vector<uint32_t> waits;      // edges not yet satisfied
  std::vector<gpu::Event> events;   // device operations in flight
  std::vector<double> issued, done;
  std::vector<uint32_t> row;        // of the trace
  std::vector<Lane> cause;          // lane of the operation that satisfied the last edge
  size_t left = 0;                  // operations not yet done

  void reset(const std::vector<uint32_t>& initial) {
    waits = initial;
    left = initial.size();
    events.assign(left, {});
    issued.resize(left);
    done.resize(left);
    row.resize(left);
    cause.assign(left, Lane::compute);
  }
};

}  // namespace

// Only abandon(), end_after() and take_stats() are called by other threads than the loop's.
struct Executor::Impl {
  Impl(const Plan& p, OpHandlers& h, const Options& o) : plan(p), handlers(h), dependencies(p), clock(p, o.trace) {
    streams[static_cast<size_t>(Lane::compute)] = o.compute;
    streams[static_cast<size_t>(Lane::h2d)] = o.h2d;
    streams[static_cast<size_t>(Lane::d2h)] = o.d2h;
    streams[static_cast<size_t>(Lane::comm)] = o.comm;
    for (size_t l = 0; l < kLanes; ++l) {
      const auto lane = static_cast<Lane>(l);
      if (plan.order[l].empty()) continue;
      if (plan.widths[l] == 0) fail(ErrorKind::bug, "lane {} has width 0", to_string(lane));
      if (is_disk_lane(lane)) continue;
      if (is_device_lane(lane) && streams[l] == nullptr) fail(ErrorKind::bug, "lane {} has no stream", to_string(lane));
      threads[l] = std::make_unique<gpu::StreamThread>(
          is_device_lane(lane) ? fmt::format("wait-{}", to_string(lane)) : to_string(lane), nullptr);
    }
  }

  uint64_t run(uint64_t first_period);
  void start(uint64_t first_period);
  void finish();

  Period& slot(uint64_t period) { return slots[period % kSlots]; }
  bool can_issue(size_t lane);
  bool begun(uint64_t period);
  void issue_all();
  void issue(size_t lane);
  void hand_over(const OpRun& run);
  void put_on_stream(const OpRun& run);
  void complete(const Completion& completion);
  void release(uint32_t by, uint32_t op, uint64_t period);
  void stop(std::exception_ptr error, uint32_t op, uint64_t period);
  double ready_time(uint32_t op, uint64_t period, Lane& cause);
  std::string what_waits();

  // What to do in a thread that finishes an operation: run `work`, then tell the loop.
  template <class Work>
  void work_on(gpu::StreamThread& thread, const OpRun& run, Work work) {
    thread.enqueue([this, op = run.index, period = run.period, work = std::move(work)] {
      std::exception_ptr error;
      try {
        work();
      } catch (...) {
        error = std::current_exception();
      }
      mailbox->post({op, period, executor_now(), error});
    });
  }

  const Plan& plan;
  OpHandlers& handlers;
  const Dependencies dependencies;
  ExecutorClock clock;
  std::array<gpu::Stream*, kLanes> streams{};

  struct Cursor {
    uint64_t period = 0;
    size_t next = 0;         // in the lane's order
    uint32_t in_flight = 0;
  };
  std::array<Cursor, kLanes> lanes;
  std::array<Period, kSlots> slots;
  uint64_t first = 0;
  uint64_t oldest = 0;       // period with operations not yet done
  uint64_t next_begin = 0;   // period that begin_period has not been asked for
  std::optional<uint64_t> end;  // begin_period said no to it
  std::atomic<uint64_t> last = kNoPeriod;  // end_after
  size_t in_flight = 0;
  // Per stream and other lane, how far in the other lane's work the stream already waits: 1 + position over all periods.
  std::array<std::array<uint64_t, kLanes>, kLanes> waited{};

  bool stopping = false;
  std::vector<Failure> failures;
  std::exception_ptr begin_error;  // of begin_period, or of the executor itself
  std::atomic<bool> abandoned = false;

  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();  // shared with callbacks of disk queues
  std::vector<Completion> letters;
  std::array<std::unique_ptr<gpu::StreamThread>, kLanes> threads;  // last: joined first
};

void Executor::Impl::start(uint64_t first_period) {
  first = oldest = next_begin = first_period;
  end.reset();
  last = kNoPeriod;
  for (auto& stream : waited) stream.fill(0);
  for (size_t l = 0; l < kLanes; ++l) lanes[l] = {.period = first};
  for (uint64_t age = 0; age < kSlots; ++age) slot(first + age).reset(dependencies.waits(age));
  clock.start(executor_now());
}

uint64_t Executor::Impl::run(uint64_t first_period) {
  if (abandoned) fail(ErrorKind::interrupted, "the step was abandoned");
  if (stopping) fail(ErrorKind::bug, "an executor is used again after an error");
  start(first_period);
  for (;;) {
    issue_all();
    if (in_flight == 0) {
      if (stopping || (end && oldest == *end) || oldest > last) break;
      begin_error = std::make_exception_ptr(Error(ErrorKind::bug, "the plan cannot go on: " + what_waits()));
      stopping = true;
      break;
    }
    mailbox->take(letters);
    for (const Completion& completion : letters) complete(completion);
    stopping = stopping || abandoned;
  }
  if (stopping) finish();
  return oldest - first;
}

// After an error or abandon(): nothing is in flight but what an operation that failed while enqueueing has left on a stream.
void Executor::Impl::finish() {
  for (gpu::Stream* stream : streams) {
    if (stream == nullptr) continue;
    try {
      stream->synchronize();
    } catch (...) {  // NOLINT: it has been reported by the operation's event
    }
  }
  if (begin_error) rethrow_named(begin_error, "executor");
  if (failures.empty()) fail(ErrorKind::interrupted, "the step was abandoned");
  // A failure spreads over streams that wait for it: of one and the same error, the first operation in plan order is the cause.
  Failure cause = failures.front();
  for (const Failure& f : failures) {
    if (f.error != cause.error) continue;
    if (std::pair(f.period, plan.ops[f.op].key) < std::pair(cause.period, plan.ops[cause.op].key)) cause = f;
  }
  rethrow_named(cause.error, fmt::format("{} of period {}", plan.name(cause.op), cause.period));
}

bool Executor::Impl::begun(uint64_t period) {
  if (period < next_begin) return true;
  try {
    if (!handlers.begin_period(period)) end = period;
    ++next_begin;
  } catch (...) {
    begin_error = std::current_exception();
    stopping = true;
  }
  return !end && !stopping;
}

bool Executor::Impl::can_issue(size_t lane) {
  const auto& order = plan.order[lane];
  const Cursor& at = lanes[lane];
  if (order.empty() || stopping || (end && at.period >= *end) || at.period > last || at.period >= oldest + kLive) return false;
  const uint32_t in_lane = at.in_flight + (yields_to_lane_before(lane) ? lanes[lane - 1].in_flight : 0);
  return in_lane < plan.widths[lane] && slot(at.period).waits[order[at.next]] == 0 && begun(at.period);
}

void Executor::Impl::issue_all() {
  if (abandoned) stopping = true;
  for (bool any = true; any;) {
    any = false;
    for (size_t lane = 0; lane < kLanes; ++lane)
      for (; can_issue(lane); any = true) issue(lane);
  }
}

void Executor::Impl::issue(size_t lane) {
  Cursor& at = lanes[lane];
  const OpRun run{&plan, plan.order[lane][at.next], at.period};
  if (++at.next == plan.order[lane].size()) at = {at.period + 1, 0, at.in_flight};
  ++at.in_flight;
  ++in_flight;
  Period& period = slot(run.period);
  period.issued[run.index] = executor_now();
  period.row[run.index] = clock.issued(run.op().lane, period.issued[run.index]);
  try {
    hand_over(run);
  } catch (...) {
    complete({run.index, run.period, executor_now(), std::current_exception()});
    return;
  }
  for (const auto& follower : dependencies.after_issue(run.index)) release(run.index, follower.op, run.period + follower.periods);
}

void Executor::Impl::hand_over(const OpRun& run) {
  const Lane lane = run.op().lane;
  if (is_device_lane(lane)) {
    put_on_stream(run);
  } else if (is_disk_lane(lane)) {
    const auto request = handlers.request(run);
    if (!request) return complete({run.index, run.period, executor_now(), nullptr, false});
    request->queue->submit(request->request, [box = mailbox, op = run.index, period = run.period](std::exception_ptr error) {
      box->post({op, period, executor_now(), std::move(error)});
    });
  } else {
    work_on(*threads[static_cast<size_t>(lane)], run, [this, run] { handlers.run(run); });
  }
}

void Executor::Impl::put_on_stream(const OpRun& run) {
  const auto lane = static_cast<size_t>(run.op().lane);
  gpu::Stream& stream = *streams[lane];
  for (const auto& producer : dependencies.producers(run.index)) {
    if (run.period - oldest < producer.periods) continue;  // of a period that is done, or from before the run
    const uint64_t period = run.period - producer.periods;
    const auto from = static_cast<size_t>(plan.ops[producer.op].lane);
    const uint64_t point = (period - first) * plan.order[from].size() + dependencies.position(producer.op) + 1;
    const gpu::Event& event = slot(period).events[producer.op];
    if (!event.state() || waited[lane][from] >= point) continue;  // known to be done, or waited for already
    stream.wait(event);
    waited[lane][from] = point;
  }
  handlers.enqueue(run, stream);
  const gpu::Event event = stream.record();
  slot(run.period).events[run.index] = event;
  work_on(*threads[lane], run, [event] { event.synchronize(); });
}

// When all that the operation waited for was there, for the statistics.
double Executor::Impl::ready_time(uint32_t op, uint64_t period, Lane& cause) {
  const Period& own = slot(period);
  cause = own.cause[op];
  double ready = own.issued[op];
  for (const auto& producer : dependencies.producers(op)) {
    if (period - oldest < producer.periods) continue;
    const Period& other = slot(period - producer.periods);
    if (other.events[producer.op].state() || other.done[producer.op] <= ready) continue;  // its completion is still in the mail
    ready = other.done[producer.op];
    cause = plan.ops[producer.op].lane;
  }
  return ready;
}

void Executor::Impl::complete(const Completion& c) {
  const Op& op = plan.ops[c.op];
  Period& period = slot(c.period);
  --in_flight;
  --lanes[static_cast<size_t>(op.lane)].in_flight;
  Lane cause = op.lane;
  const double ready = ready_time(c.op, c.period, cause);
  clock.done({c.op, period.row[c.op], ready, c.at, cause, c.moved ? op.bytes : 0});
  period.events[c.op] = {};
  period.done[c.op] = c.at;
  if (c.error) return stop(c.error, c.op, c.period);
  try {
    handlers.done({&plan, c.op, c.period});
  } catch (...) {
    return stop(std::current_exception(), c.op, c.period);
  }
  for (const auto& follower : dependencies.after_done(c.op)) release(c.op, follower.op, c.period + follower.periods);
  --period.left;
  for (; slot(oldest).left == 0; ++oldest) slot(oldest).reset(dependencies.waits(oldest + kSlots - first));
}

void Executor::Impl::release(uint32_t by, uint32_t op, uint64_t in_period) {
  Period& period = slot(in_period);
  if (--period.waits[op] == 0) period.cause[op] = plan.ops[by].lane;
}

void Executor::Impl::stop(std::exception_ptr error, uint32_t op, uint64_t period) {
  stopping = true;
  failures.push_back({std::move(error), op, period});
}

std::string Executor::Impl::what_waits() {
  std::string text;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    if (plan.order[lane].empty()) continue;
    const uint32_t op = plan.order[lane][lanes[lane].next];
    text += fmt::format("{}{} of period {} waits for {} operations", text.empty() ? "" : "; ", plan.name(op), lanes[lane].period,
                        slot(lanes[lane].period).waits[op]);
  }
  return text;
}

Executor::Executor(const Plan& plan, OpHandlers& handlers, const Options& options)
    : impl_(std::make_unique<Impl>(plan, handlers, options)) {}
Executor::~Executor() = default;

uint64_t Executor::run(uint64_t first_period) { return impl_->run(first_period); }

void Executor::end_after(uint64_t period) { impl_->last = period; }

void Executor::abandon() {
  impl_->abandoned = true;
  impl_->mailbox->wake();
}

ExecutorStats Executor::take_stats() { return impl_->clock.take(); }

}  // namespace sluice::offload
