// sluice bench: what this machine reaches, part by part.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "apps/bench_output.h"
#include "apps/command.h"
#include "base/error.h"
#include "configs/machine_profile.h"
#include "engine/known_models.h"
#include "engine/runtime.h"
#include "gpu/emulated_device.h"

namespace sluice::apps {
namespace {

using base::ErrorKind;

struct Options : CommonOptions {
  std::vector<std::string> parts;
  std::string dir = ".", out, model = "SmolLM2-135M";
  double seconds = 10, most = 600;
  int threads = 0;
  bool sustained = false;
};

engine::HfConfig model_named(const std::string& name) {
  if (std::filesystem::exists(name)) return engine::read_hf_config(name);
  return engine::model_of_sizes("llama", nlohmann::ordered_json(name));
}

int run_bench(const Options& options) {
  const auto wants = [&](const char* part) {
    return options.parts.empty() || std::ranges::find(options.parts, "all") != options.parts.end() ||
           std::ranges::find(options.parts, part) != options.parts.end();
  };
  const bool all = wants("all");
  if (options.sustained && !wants("disk")) base::fail(ErrorKind::config, "--sustained is about the disk: sluice bench disk --sustained");
  if (!std::filesystem::is_directory(options.dir)) base::fail(ErrorKind::config, "--dir {}: no such folder", options.dir);
  const BenchOptions o{.directory = options.dir, .seconds = options.seconds, .threads = options.threads, .model = model_named(options.model)};
  gpu::EmulatedOptions emulated;
  emulated.memory = engine::automatic_memory();
  emulated.compute_threads = options.threads;
  const auto device = gpu::make_emulated_device(emulated);

  Bench bench;
  const auto part = [&](const char* name, auto& to, const auto& measure) {
    if (!wants(name)) return;
    spdlog::info("measuring {}", name);
    to = measure();
  };
  part("memory", bench.memory, [&] { return bench_memory(o); });
  part("adam", bench.adam, [&] { return bench_adam(o); });
  part("copy", bench.copy, [&] { return bench_copy(o, *device); });
  part("compute", bench.compute, [&] { return bench_compute(o, *device); });
  part("disk", bench.disk, [&] { return bench_disk(o); });
  if (all) {
    spdlog::info("measuring everything at once");
    bench.together = bench_together(o, *device);
  }
  if (options.sustained) {
    spdlog::info("writing until the rate is flat, at most {:.0f} s", options.most);
    bench.sustained = bench_sustained(o, options.most);
  }

  const offload::Machine machine = profile_of(bench, o);
  if (!options.out.empty()) configs::write_machine(machine, options.out);
  if (options.json) {
    nlohmann::ordered_json document{{"machine", machine.name}};
    document.update(bench_json(bench));
    fmt::print("{}\n", document.dump(2));
  } else {
    fmt::print("{}\n{}", machine.name, bench_text(bench));
  }
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(app, context, "bench", "Measure what this machine reaches, and how near that is to its limits", options, run_bench);
  command->add_option("PART", options->parts, "all (default), disk, copy, adam, memory or compute; about ten seconds each")
      ->type_name("")
      ->check(CLI::IsMember({"all", "disk", "copy", "adam", "memory", "compute"}).description(""));
  command->add_option("--dir", options->dir, "Folder on the disk to measure (default: here)")->type_name("DIR");
  command->add_option("--out", options->out, "Write the rates as a machine profile, for sluice plan --machine FILE")->type_name("FILE");
  command->add_option("--model", options->model, "Model whose layer and head are computed: a folder or a known name")->type_name("DIR|NAME");
  command->add_option("--seconds", options->seconds, "Of each part")->type_name("S")->check(CLI::Range(0.1, 3600.0));
  command->add_option("--threads", options->threads, "Of Adam and of computation (default: all cores this process may use)")->type_name("N")->check(CLI::Range(0, 4096));
  command->add_flag("--sustained", options->sustained, "Write to the disk until the rate is flat: what the drive keeps up when its cache is full");
  command->add_option("--most", options->most, "Seconds after which --sustained ends though the rate is not flat")->type_name("S")->check(CLI::Range(1.0, 86400.0));
  command->footer(
      "Medians of several rounds after a warm-up; spread is (largest - smallest) / median; processor time is that of the whole process,\n"
      "the kernel's part included. `all` ends with everything at once, as a step does it. Nothing else should be running. The device is the\n"
      "emulated one; GPUs: sluice doctor, scripts/gpu-check.");
}

}  // namespace sluice::apps
