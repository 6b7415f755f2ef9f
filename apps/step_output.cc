#include "apps/step_output.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"

namespace sluice::apps {

using offload::Lane;

namespace {

double rate(uint64_t n, const engine::StepReport& s) { return s.seconds > 0 ? static_cast<double>(n) / s.seconds / 1e9 : 0; }
double tokens_per_second(const engine::StepReport& s) { return s.seconds > 0 ? static_cast<double>(s.tokens) / s.seconds : 0; }

std::string skipped_text(const engine::StepReport& s) {
  if (!s.skipped) return "";
  if (s.loss_scale == 0) return "  SKIPPED: not finite";
  return fmt::format("  SKIPPED: overflow at loss scale {}, {} {}", s.loss_scale, s.next_loss_scale == s.loss_scale ? "which stays" : "now",
                     s.next_loss_scale);
}

std::string communication_text(const engine::StepReport& s, const StepFacts& facts) {
  if (!facts.hidden) return "";
  return fmt::format("  communication {:.2f} s, {:.0f} % hidden by compute", s.stats.busy[static_cast<size_t>(Lane::comm)], 100 * *facts.hidden);
}

}  // namespace

std::string step_line(const engine::StepReport& s, const StepFacts& facts) {
  const std::string numbers = s.timing_only ? "timing only" : fmt::format("loss {:.4f}  lr {:.2e}  grad_norm {:.3f}  clip_coef {:.3f}", s.loss, s.lr,
                                                                          s.grad_norm, s.clip);
  const LinkBytes moved = link_bytes(s.stats.bytes);
  return fmt::format("step {}/{}  {}  {:.0f} tokens/s  {:.2f} s  disk {:.2f} read {:.2f} write  copy {:.2f} GB/s{}  eta {}{}{}{}", s.step, s.steps,
                     numbers, tokens_per_second(s), s.seconds, rate(moved.disk_read, s),
                     rate(moved.disk_write, s), rate(moved.h2d + moved.d2h, s), communication_text(s, facts), base::format_duration(s.eta_seconds),
                     skipped_text(s), s.redone ? "  redone" : "", s.committed ? "  committed" : "");
}

std::string metrics_line(const engine::StepReport& s, const StepFacts& facts) {
  using Json = nlohmann::ordered_json;
  const auto number = [&](double value) { return s.timing_only ? Json(nullptr) : Json(value); };
  nlohmann::ordered_json stall = nlohmann::ordered_json::object();
  stall["compute"] = s.stats.compute_stall;
  for (size_t lane = 0; lane < offload::kLanes; ++lane)
    if (s.stats.stall_by_lane[lane] > 0) stall[stall_name(static_cast<Lane>(lane))] = s.stats.stall_by_lane[lane];
  Json lanes = Json::object();
  for (size_t lane = 0; lane < offload::kLanes; ++lane)
    if (s.stats.busy[lane] > 0) lanes[offload::to_string(static_cast<Lane>(lane))] = {{"seconds", s.stats.busy[lane]}, {"bytes", s.stats.bytes[lane]}};
  const LinkBytes moved = link_bytes(s.stats.bytes);
  Json line{
      {"step", s.step},
      {"loss", number(s.loss)},
      {"lr", s.lr},
      {"grad_norm", number(s.grad_norm)},
      {"clip_coef", number(s.clip)},
      {"loss_scale", s.loss_scale != 0 ? Json(s.loss_scale) : Json(nullptr)},
      {"tokens", s.tokens},
      {"tokens_per_s", tokens_per_second(s)},
      {"step_seconds", s.seconds},
      {"predicted_seconds", facts.predicted ? Json(*facts.predicted) : Json(nullptr)},
      {"stall", stall},
      {"bytes", {{"disk_read", moved.disk_read}, {"disk_write", moved.disk_write}, {"h2d", moved.h2d}, {"d2h", moved.d2h}, {"net", moved.net}}},
      {"lanes", lanes},
      {"skipped", s.skipped},
      {"guessed", s.guessed},
      {"redone", s.redone},
      {"committed", s.committed},
      {"time", facts.time}};
  line.update(facts_json(s, facts));
  if (facts.hidden) line["communication"] = {{"seconds", s.stats.busy[static_cast<size_t>(Lane::comm)]}, {"hidden", *facts.hidden}};
  return line.dump();
}

MetricsFile::MetricsFile(const std::filesystem::path& file) : file_(std::fopen(file.c_str(), "ae")), path_(file.string()) {
  if (file_ == nullptr) base::fail(base::ErrorKind::disk, "cannot open {}: {}", path_, std::strerror(errno));
}
MetricsFile::~MetricsFile() { std::fclose(file_); }

void MetricsFile::append(const std::string& line) {
  if (std::fputs((line + "\n").c_str(), file_) < 0 || std::fflush(file_) != 0)
    base::fail(base::ErrorKind::disk, "cannot write {}: {}", path_, std::strerror(errno));
}

}  // namespace sluice::apps
