#include "apps/logging.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "base/error.h"

namespace sluice::apps {
namespace {
constexpr const char* kTerminalPattern = "%^%L%$ %H:%M:%S %v";
constexpr const char* kFilePattern = "%L %Y-%m-%d %H:%M:%S.%e %v";
constexpr size_t kEarlyLines = 200;
using EarlyLines = spdlog::sinks::ringbuffer_sink_mt;
using FileSink = spdlog::sinks::basic_file_sink_mt;
}  // namespace

void start_logging() {
  auto terminal = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();  // colour only when it is a terminal
  terminal->set_pattern(kTerminalPattern);
  spdlog::sinks_init_list sinks{std::move(terminal), std::make_shared<EarlyLines>(kEarlyLines)};
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("sluice", sinks));
  spdlog::flush_on(spdlog::level::info);
}

void log_to_file(const std::filesystem::path& file) {
  auto& sinks = spdlog::default_logger()->sinks();
  try {
    auto sink = std::make_shared<FileSink>(file.string());
    sink->set_pattern(kFilePattern);
    if (const auto early = std::dynamic_pointer_cast<EarlyLines>(sinks.back())) {
      for (const auto& line : early->last_raw()) sink->log(line);
      sinks.pop_back();
    }
    sinks.push_back(std::move(sink));
  } catch (const spdlog::spdlog_ex& error) {
    base::fail(base::ErrorKind::disk, "{}: the log cannot be opened: {}", file.string(), error.what());
  }
}

void log_failure(const std::string& message) {
  for (const auto& sink : spdlog::default_logger()->sinks())
    if (std::dynamic_pointer_cast<FileSink>(sink)) {
      sink->log({"sluice", spdlog::level::err, message});
      sink->flush();
    }
}

}  // namespace sluice::apps
