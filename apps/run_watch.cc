#include "apps/run_watch.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace sluice::apps {

using offload::LaneDrift;

namespace {

std::string overflow_advice(const engine::StepReport& report, uint64_t overflows) {
  return fmt::format(
      "the gradients of the last {} steps overflowed in fp16, and none of them was learnt from. {} Check the loss ({:.4g}): one that "
      "grows or jumps wants a lower learning rate or more warm-up. A model that was trained in bf16 may have activations beyond "
      "fp16's 65504: bf16.enabled trains it",
      overflows,
      report.next_loss_scale == report.loss_scale
          ? fmt::format("The loss scale stays at {}: a lower fp16.loss_scale, or 0 for a dynamic one, may be all it needs.", report.loss_scale)
          : fmt::format("The loss scale is at {} now and still falling: a lower fp16.initial_scale_power gets there sooner.", report.next_loss_scale),
      report.loss);
}

}  // namespace

std::string event_line(const RunEvent& event) {
  return nlohmann::ordered_json{{"step", event.step}, {"event", event.kind}, {"text", event.text}}.dump();
}

void RunWatch::resume(const RunMetrics& earlier, bool same_lanes) {
  for (const StepFigures& step : earlier.steps) {
    const auto value = [&](const std::string& key) {
      const auto found = step.values.find(key);
      return found == step.values.end() ? 0 : found->second;
    };
    if (same_lanes) drift_.add(lanes_of(step), value("step_seconds"));
    if (value("skipped") != 0 || !step.values.contains("loss")) continue;
    loss_.add(value("loss"));
    norm_.add(value("grad_norm"));
  }
  drift_.restart();
  for (const EvalFigures& e : earlier.evaluations) eval_.add(e.step, e.loss);
}

std::vector<RunEvent> RunWatch::step(const engine::StepReport& report) {
  std::vector<RunEvent> events;
  for (const LaneDrift& drift : drift_.add(report.stats, report.seconds))
    events.push_back({report.step, "drift",
                      fmt::format("lane {} takes {:.0f} % longer than {}, {:.0f} % of the step's time; usual cause: {}", offload::to_string(drift.lane),
                                  (drift.ratio - 1) * 100,
                                  drift.against == LaneDrift::Against::plan
                                      ? "planned"
                                      : fmt::format("in the first {} steps", offload::LaneDriftWatch::kStart),
                                  100 * drift.excess, drift.cause)});
  if (auto text = prediction_.add(report.seconds)) events.push_back({report.step, "prediction", *text});
  if (auto text = guesses_.add(report.guessed, report.redone)) events.push_back({report.step, "guess", *text});
  overflows_ = report.skipped && report.loss_scale != 0 ? overflows_ + 1 : 0;
  if (overflows_ != 0 && overflows_ % kOverflows == 0) events.push_back({report.step, "loss_scale", overflow_advice(report, overflows_)});
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
