#include "apps/logging.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "base/error.h"

namespace sluice::apps {
namespace {
constexpr const char* kTerminalPattern = "%^%L%$ %H:%M:%S %v";
constexpr const char* kFilePattern = "%L %Y-%m-%d %H:%M:%S.%e %v";
}  // namespace

void start_logging() {
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();  // colour only when it is a terminal
  sink->set_pattern(kTerminalPattern);
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("sluice", std::move(sink)));
  spdlog::flush_on(spdlog::level::info);
}

void log_to_file(const std::filesystem::path& file) {
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file.string());
    sink->set_pattern(kFilePattern);
    spdlog::default_logger()->sinks().push_back(std::move(sink));
  } catch (const spdlog::spdlog_ex& error) {
    base::fail(base::ErrorKind::disk, "{}: the log cannot be opened: {}", file.string(), error.what());
  }
}

}  // namespace sluice::apps
