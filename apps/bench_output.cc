#include "apps/bench_output.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/statistics.h"
#include "base/units.h"

namespace sluice::apps {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kGiga = 1e9;
constexpr double kAdamBytes = offload::kAdamBytes;

std::string line(const std::string& part, const std::string& what, const std::string& rate, const Rate& r, const std::string& cost,
                 const std::string& limit) {
  return fmt::format("{:<8} {:<16} {:>16} {:>9.0f} % {:>12} {:>14}\n", part, what, rate, 100 * r.rounds.spread(), cost,
                     r.limit > 0 ? fmt::format("{:.1f} % of {}", 100 * r.share(), limit) : "");
}

std::string bytes_line(const std::string& part, const std::string& what, const Rate& r, const std::string& limit) {
  return line(part, what, fmt::format("{:.2f} GB/s", r.value() / kGiga), r, r.rounds.cpu_per_unit > 0 ? fmt::format("{:.1f} ms/GB", 1e3 * r.rounds.cpu_per_unit * kGiga) : "",
              limit);
}

std::string adam_line(const std::string& what, const Rate& r) {
  return line("adam", what, fmt::format("{:.0f} Mparam/s", r.value() / 1e6), r,
              fmt::format("{:.1f} ms/GB", 1e3 * r.rounds.cpu_per_unit / kAdamBytes * kGiga), "its stream");
}

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())))];
}

Json rate_json(const Rate& r, const char* limit) {
  Json json{{"gb_per_s", r.value() / kGiga}, {"spread", r.rounds.spread()}};
  if (r.rounds.cpu_per_unit > 0) json["cpu_ms_per_gb"] = 1e3 * r.rounds.cpu_per_unit * kGiga;
  json[limit] = r.limit > 0 ? Json(r.share()) : Json(nullptr);
  return json;
}

Json adam_json(const Rate& r) {
  return {{"params_per_s", r.value()},
          {"gb_per_s", r.value() * kAdamBytes / kGiga},
          {"fraction_of_stream", r.share()},
          {"spread", r.rounds.spread()},
          {"cpu_ms_per_gb", 1e3 * r.rounds.cpu_per_unit / kAdamBytes * kGiga}};
}

Json disk_json(const DiskBench& d) {
  Json cells = Json::array();
  for (const DiskCell& c : d.cells)
    cells.push_back({{"block", c.block}, {"depth", c.depth}, {"read_gb_per_s", c.read / kGiga}, {"write_gb_per_s", c.write / kGiga}});
  return {{"queue", d.queue},
          {"file_bytes", d.file_bytes},
          {"read", rate_json(d.read, "fraction_of_best")},
          {"write", rate_json(d.write, "fraction_of_best")},
          {"mixed", rate_json(d.mixed, "fraction_of_turns")},
          {"cells", cells},
          {"commit_4k_ms", {{"median", 1e3 * base::median(d.commits)}, {"p99", 1e3 * percentile(d.commits, 0.99)}, {"count", d.commits.size()}}},
          {"flush_ms", 1e3 * d.flush}};
}

Json sustained_json(const SustainedRate& s) {
  Json windows = Json::array();
  for (const double w : s.windows) windows.push_back(w / kGiga);
  return {{"gb_per_s", s.rate() / kGiga},
          {"flat", s.flat},
          {"bytes", s.bytes},
          {"bytes_before_slower", s.fast_bytes ? Json(*s.fast_bytes) : Json(nullptr)},
          {"windows_gb_per_s", windows}};
}

// {of the part alone: none when that was not run}
Json together_json(const Bench& bench) {
  const TogetherBench& t = *bench.together;
  const auto beside = [](const base::Rounds& rounds, double unit, double alone) {
    return Json{{"rate", rounds.median() / unit}, {"spread", rounds.spread()}, {"fraction_of_alone", alone > 0 ? Json(rounds.median() / alone) : Json(nullptr)}};
  };
  const double half_mixed = bench.disk ? bench.disk->mixed.value() / 2 : 0;
  return {{"disk_read_gb_per_s", beside(t.disk_read, kGiga, half_mixed)},
          {"disk_write_gb_per_s", beside(t.disk_write, kGiga, half_mixed)},
          {"adam_params_per_s", beside(t.adam, 1, bench.adam ? bench.adam->hashed.value() : 0)},
          {"h2d_gb_per_s", beside(t.h2d, kGiga, bench.copy ? bench.copy->h2d.value() : 0)},
          {"d2h_gb_per_s", beside(t.d2h, kGiga, bench.copy ? bench.copy->d2h.value() : 0)}};
}

std::string disk_text(const DiskBench& d) {
  const auto best = [&](double DiskCell::*rate) {
    const auto cell = std::max_element(d.cells.begin(), d.cells.end(), [rate](const DiskCell& a, const DiskCell& b) { return a.*rate < b.*rate; });
    return fmt::format("{:.2f} GB/s with {} x {}", (*cell).*rate / kGiga, base::format_bytes(cell->block), cell->depth);
  };
  return bytes_line("disk", "read", d.read, "the best") + bytes_line("disk", "write", d.write, "the best") +
         bytes_line("disk", "read and write", d.mixed, "taking turns") +
         fmt::format("{:<8} {}; blocks of 4 MiB, 8 in flight; best read {}, best write {}\n", "", d.queue, best(&DiskCell::read), best(&DiskCell::write)) +
         fmt::format("{:<8} 4 KiB write + fdatasync: {:.2f} ms median, {:.2f} ms for 99 % of {}; 4 MiB: {:.2f} ms\n", "", 1e3 * base::median(d.commits),
                     1e3 * percentile(d.commits, 0.99), d.commits.size(), 1e3 * d.flush);
}

std::string together_text(const Bench& bench) {
  const Json all = together_json(bench);
  std::string text;
  for (const auto& [name, value] : all.items()) {
    const double rate = value.at("rate");
    text += fmt::format("{:<8} {:<20} {:>12} {:>9.0f} %{}\n", "together", name, rate > 1e5 ? fmt::format("{:.0f}", rate) : fmt::format("{:.2f}", rate),
                        100 * value.at("spread").get<double>(),
                        value.at("fraction_of_alone").is_null() ? "" : fmt::format(" {:>10.0f} % of alone", 100 * value.at("fraction_of_alone").get<double>()));
  }
  return text + fmt::format("{:<8} {:.1f} cores at work\n", "", bench.together->busy_cores);
}

}  // namespace

std::string bench_text(const Bench& b) {
  std::string text = fmt::format("{:<8} {:<16} {:>16} {:>11} {:>12} {:>14}\n", "part", "what", "rate", "spread", "processor", "of the limit");
  if (b.memory)
    text += bytes_line("memory", "read", b.memory->read, "the best") + bytes_line("memory", "write", b.memory->write, "the best") +
            bytes_line("memory", "copy", b.memory->copy, "the best");
  if (b.adam) text += adam_line("update", b.adam->plain) + adam_line("with checksums", b.adam->hashed) + fmt::format("{:<8} {}\n", "", b.adam->kernel);
  if (b.copy)
    text += bytes_line("copy", "to the device", b.copy->h2d, "memcpy") + bytes_line("copy", "from the device", b.copy->d2h, "memcpy") +
            fmt::format("{:<8} {}\n", "", b.copy->device);
  if (b.compute) {
    const Rate& r = b.compute->step;
    text += line("compute", "layer and head", fmt::format("{:.0f} GFLOP/s", r.value() / 1e9), r, fmt::format("{:.1f} s/TFLOP", 1e12 * r.rounds.cpu_per_unit),
                 "one product");
  }
  if (b.comm)
    text += bytes_line("comm", "gather", b.comm->gather, "memcpy") + bytes_line("comm", "reduction", b.comm->reduce, "the gather") +
            fmt::format("{:<8} {}; received by each; a small gather takes {:.0f} us\n", "", b.comm->transport, 1e6 * b.comm->latency);
  if (b.disk) text += disk_text(*b.disk);
  if (b.sustained)
    text += fmt::format("{:<8} sustained write {:.2f} GB/s{} after {}{}\n", "disk", b.sustained->rate() / kGiga, b.sustained->flat ? "" : " (not flat yet)",
                        base::format_bytes(static_cast<uint64_t>(b.sustained->bytes)),
                        b.sustained->fast_bytes ? fmt::format("; slower from {} on", base::format_bytes(static_cast<uint64_t>(*b.sustained->fast_bytes))) : "");
  if (b.together) text += together_text(b);
  return text;
}

Json bench_json(const Bench& b) {
  Json document = Json::object();
  if (b.memory)
    document["memory"] = {{"read", rate_json(b.memory->read, "fraction_of_best")},
                          {"write", rate_json(b.memory->write, "fraction_of_best")},
                          {"copy", rate_json(b.memory->copy, "fraction_of_best")}};
  if (b.adam) {
    document["adam"] = adam_json(b.adam->plain);
    document["adam"]["kernel"] = b.adam->kernel;
    document["adam"]["with_checksums"] = adam_json(b.adam->hashed);
  }
  if (b.copy)
    document["copy"] = {{"device", b.copy->device}, {"h2d", rate_json(b.copy->h2d, "fraction_of_memcpy")}, {"d2h", rate_json(b.copy->d2h, "fraction_of_memcpy")}};
  if (b.compute)
    document["compute"] = {{"flops_per_s", b.compute->step.value()},
                           {"spread", b.compute->step.rounds.spread()},
                           {"cpu_s_per_tflop", 1e12 * b.compute->step.rounds.cpu_per_unit},
                           {"fraction_of_product", b.compute->step.share()}};
  if (b.comm)
    document["comm"] = {{"ranks", b.comm->world},
                        {"transport", b.comm->transport},
                        {"gather", rate_json(b.comm->gather, "fraction_of_memcpy")},
                        {"reduce", rate_json(b.comm->reduce, "fraction_of_gather")},
                        {"latency_us", 1e6 * b.comm->latency}};
  if (b.disk) document["disk"] = disk_json(*b.disk);
  if (b.sustained) document["sustained"] = sustained_json(*b.sustained);
  if (b.together) {
    document["together"] = together_json(b);
    document["together_busy_cores"] = b.together->busy_cores;
  }
  return document;
}

}  // namespace sluice::apps
