#include "apps/run_dir.h"

#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/units.h"
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
    if (!out) {
      std::error_code ignored;
      fs::remove(temporary, ignored);
      base::fail(base::ErrorKind::disk, "cannot write {} ({}). Is the disk full?", temporary.string(),
                 base::format_bytes(text.size()));
    }
  }
  fs::rename(temporary, file);
}

void make_absolute(fs::path* path) {
  if (!path->empty()) *path = fs::absolute(*path).lexically_normal();
}

}  // namespace

configs::RunConfig with_absolute_paths(configs::RunConfig config) {
  for (fs::path* path : {&config.model.path, &config.data.train, &config.data.eval, &config.run.dir}) make_absolute(path);
  for (fs::path& path : config.storage.paths) make_absolute(&path);
  return config;
}

bool RunDir::has_store() const { return offload::Store::exists(path_); }

void RunDir::write_config(const configs::RunConfig& config) const {
  replace_text(config_file(), configs::resolved_json(with_absolute_paths(config)).dump(2) + "\n");
}

configs::RunConfig RunDir::read_config(configs::Purpose purpose) const {
  if (!fs::exists(config_file()))
    base::fail(base::ErrorKind::config, "{} is no run: it has no config.json", path_.string());
  return configs::parse_config(read_text(config_file()), config_file(), {.set = {}, .purpose = purpose});
}

configs::RunConfig RunDir::read_run() const {
  if (!fs::is_directory(path_)) base::fail(base::ErrorKind::config, "{} is no run: there is no such folder", path_.string());
  if (!has_store())
    base::fail(base::ErrorKind::config, "{} is no run: it has no store. Give the run.dir of a training run", path_.string());
  return read_config(configs::Purpose::reading);
}

NewRun::NewRun(const RunDir& run, const configs::RunConfig& config) : run_(run), existing_(run.path()) {
  had_config_ = fs::exists(run.config_file());
  if (had_config_) {
    try {
      run.read_config(configs::Purpose::reading);  // of a start that was killed
    } catch (const base::Error&) {
      base::fail(base::ErrorKind::config, "run.dir {}: its config.json is not that of a run and would be overwritten; choose another run.dir",
                 run.path().string());
    }
  }
  while (!existing_.empty() && !fs::exists(existing_)) existing_ = existing_.parent_path();
  std::error_code error;
  fs::create_directories(run.path(), error);
  if (!error && !fs::is_directory(run.path())) error = std::make_error_code(std::errc::not_a_directory);
  if (error) {
    take_back();
    base::fail(base::ErrorKind::disk, "cannot make run.dir {}: {}", run.path().string(), error.message());
  }
  try {
    run.write_config(config);
  } catch (...) {
    take_back();
    throw;
  }
}

NewRun::~NewRun() {
  if (!kept_) take_back();
}

void NewRun::take_back() noexcept {
  std::error_code ignored;
  if (!had_config_) fs::remove(run_.config_file(), ignored);
  for (fs::path at = run_.path(); at != existing_ && at.has_relative_path(); at = at.parent_path())
    if (!fs::remove(at, ignored)) break;  // not empty
}

uint64_t RunDir::cut_metrics(uint64_t step) const {
  if (!fs::exists(metrics_file())) return 0;
  uint64_t lost = 0;
  std::istringstream lines(read_text(metrics_file()));
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);  // the last line may be torn
    if (json.is_object() && json.value("step", UINT64_MAX) <= step)
      kept += line + "\n";
    else
      lost += json.is_object() && json.contains("step_seconds") ? 1 : 0;
  }
  replace_text(metrics_file(), kept);
  return lost;
}

}  // namespace sluice::apps
