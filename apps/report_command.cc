// sluice report: one page about a run.
#include <fstream>

#include "apps/command.h"
#include "apps/report_page.h"
#include "apps/run_dir.h"
#include "apps/tensorboard.h"
#include "base/error.h"

namespace sluice::apps {
namespace {

struct Options : CommonOptions {
  std::string run, out, tensorboard;
};

RunRecord read_record(const RunDir& run) {
  return {read_metrics(run.metrics_file()), read_starts(run.starts_file()), read_run_memory(run.memory_file())};
}

int run_report(const Options& options) {
  const RunDir run(options.run);
  const configs::RunConfig config = run.read_run();
  const RunRecord record = read_record(run);
  const RunMetrics& metrics = record.metrics;
  const std::string file = options.out.empty() ? (run.path() / "report.html").string() : options.out;
  std::ofstream out(file, std::ios::trunc);
  out << report_page(config, record);
  out.close();
  if (!out) base::fail(base::ErrorKind::disk, "cannot write {}: {}", file, std::strerror(errno));
  if (!options.tensorboard.empty()) write_tensorboard(options.tensorboard, metrics);
  if (options.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"report", file}, {"steps", metrics.steps.size()}, {"events", metrics.events.size()}}.dump(2));
  } else {
    fmt::print("{}: {} steps, {} evaluations, {} events\n", file, metrics.steps.size(), metrics.evaluations.size(), metrics.events.size());
  }
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(app, context, "report", "Write one HTML page about a run: losses, times, stalls, bandwidths, memory, events", options, run_report);
  command->add_option("RUN_DIR", options->run, "Folder of the run; it may be at work")->required()->type_name("");
  command->add_option("--out", options->out, "HTML file to write (default: RUN_DIR/report.html)")->type_name("FILE");
  command->add_option("--tensorboard", options->tensorboard, "Also write the figures as a TensorBoard event file into this folder")->type_name("DIR");
}

}  // namespace sluice::apps
