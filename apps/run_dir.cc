#include "apps/run_dir.h"

#include <fstream>
#include <sstream>

#include "base/error.h"
#include "configs/explain.h"
#include "offload/store.h"

namespace sluice::apps {

namespace fs = std::filesystem;

namespace {

std::string read_text(const fs::path& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) base::fail(base::ErrorKind::disk, "cannot read {}", file.string());
  return text.str();
}

void replace_text(const fs::path& file, const std::string& text) {
  const fs::path temporary = file.string() + ".tmp";
  {
    std::ofstream out(temporary, std::ios::trunc);
    out << text;
    out.close();
    if (!out) base::fail(base::ErrorKind::disk, "cannot write {}: is the disk full?", temporary.string());
  }
  fs::rename(temporary, file);
}

}  // namespace

bool RunDir::has_store() const { return offload::Store::exists(path_); }

void RunDir::create() const {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) base::fail(base::ErrorKind::disk, "cannot make run.dir {}: {}", path_.string(), error.message());
}

void RunDir::write_config(const configs::RunConfig& config) const {
  replace_text(config_file(), configs::resolved_json(config).dump(2) + "\n");
}

configs::RunConfig RunDir::read_config(configs::Purpose purpose) const {
  if (!fs::exists(config_file()))
    base::fail(base::ErrorKind::config, "{} is no run: it has no config.json", path_.string());
  return configs::parse_config(read_text(config_file()), config_file(), {.set = {}, .purpose = purpose});
}

void RunDir::cut_metrics(uint64_t step) const {
  if (!fs::exists(metrics_file())) return;
  std::istringstream lines(read_text(metrics_file()));
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);  // the last line may be torn
    if (json.is_object() && json.value("step", UINT64_MAX) <= step) kept += line + "\n";
  }
  replace_text(metrics_file(), kept);
}

}  // namespace sluice::apps
