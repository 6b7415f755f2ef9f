#include "apps/run_watch.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace sluice::apps {

using offload::LaneDrift;

std::string event_line(const RunEvent& event) {
  return nlohmann::ordered_json{{"step", event.step}, {"event", event.kind}, {"text", event.text}}.dump();
}

std::vector<RunEvent> RunWatch::step(const engine::StepReport& report) {
  std::vector<RunEvent> events;
  for (const LaneDrift& drift : drift_.add(report.stats))
    events.push_back({report.step, "drift",
                      fmt::format("lane {} takes {:.0f} % longer than {}; usual cause: {}", offload::to_string(drift.lane), (drift.ratio - 1) * 100,
                                  drift.against == LaneDrift::Against::plan
                                      ? "planned"
                                      : fmt::format("in the first {} steps", offload::LaneDriftWatch::kStart),
                                  drift.cause)});
  if (report.skipped || report.timing_only) return events;
  if (auto text = loss_.add(report.loss)) events.push_back({report.step, "outlier", *text});
  if (auto text = norm_.add(report.grad_norm)) events.push_back({report.step, "outlier", *text});
  return events;
}

std::vector<RunEvent> RunWatch::evaluation(uint64_t step, double loss) {
  if (auto text = eval_.add(step, loss)) return {{step, "evaluation", *text}};
  return {};
}

}  // namespace sluice::apps
