#include "apps/doctor.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "apps/doctor_findings.h"
#include "base/error.h"

namespace sluice::apps {
namespace {

const char* name_of(Finding::Status status) {
  switch (status) {
    case Finding::Status::ok: return "ok";
    case Finding::Status::note: return "note";
    case Finding::Status::warning: return "warning";
    case Finding::Status::error: return "error";
  }
  return "?";
}

void print_text(const std::vector<Finding>& findings) {
  std::string section;
  for (const Finding& finding : findings) {
    if (finding.section != section) fmt::print("{}{}\n", section.empty() ? "" : "\n", finding.section);
    section = finding.section;
    fmt::print("  {:<8} {:<18} {}\n", name_of(finding.status), finding.name, finding.value);
    if (!finding.meaning.empty()) fmt::print("  {:<8} {:<18} {}\n", "", "", finding.meaning);
    if (!finding.fix.empty()) fmt::print("  {:<8} {:<18} Fix: {}\n", "", "", finding.fix);
  }
}

void print_json(const std::vector<Finding>& findings) {
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& finding : findings)
    list.push_back({{"section", finding.section},
                    {"name", finding.name},
                    {"status", name_of(finding.status)},
                    {"value", finding.value},
                    {"numbers", finding.numbers},
                    {"meaning", finding.meaning},
                    {"fix", finding.fix}});
  fmt::print("{}\n", nlohmann::json{{"findings", list}}.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

int run_doctor(const DoctorOptions& options) {
  std::vector<Finding> findings;
  const auto append = [&findings](std::vector<Finding> more) { findings.insert(findings.end(), more.begin(), more.end()); };
  append(processor_findings());
  append(memory_findings());
  append(gpu_findings());
  append(kernel_io_findings());
  bool usable = true;
  for (const std::filesystem::path& directory : options.dirs) {
    append(directory_findings(directory));
    for (const Finding& finding : findings) usable = usable && finding.status != Finding::Status::error;
  }
  if (options.json)
    print_json(findings);
  else
    print_text(findings);
  if (options.dirs.empty() && !options.json)
    fmt::print("\nNo directory was given: --dir D looks at D as a place for weights and optimizer state.\n");
  return usable ? 0 : static_cast<int>(base::ErrorKind::disk);
}

}  // namespace sluice::apps
