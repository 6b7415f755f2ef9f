// sluice bench: what this machine reaches, part by part.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "apps/bench_output.h"
#include "apps/command.h"
#include "apps/output_file.h"
#include "apps/rank_session.h"
#include "apps/ranks.h"
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
  std::string dir, out, model;
  double seconds = 10, most = 600;
  int threads = 0, nproc = 0;
  bool sustained = false;

  bool all() const { return parts.empty() || std::ranges::find(parts, "all") != parts.end(); }
  bool named(const char* part) const { return std::ranges::find(parts, part) != parts.end(); }
  bool wants(const char* part) const { return all() || named(part); }
};

engine::HfConfig model_named(const std::string& name) {
  if (std::filesystem::exists(name)) return engine::read_hf_config(name);
  return engine::model_of_sizes("llama", nlohmann::ordered_json(name));
}

// As the command line says, before anything is measured: an option of a part that is not measured would do nothing.
void check(const Options& options) {
  if (options.sustained && !options.wants("disk")) base::fail(ErrorKind::config, "--sustained is about the disk: sluice bench disk --sustained");
  if (options.nproc > 0 && !options.wants("comm")) base::fail(ErrorKind::config, "--nproc is about comm: sluice bench comm --nproc {}", options.nproc);
  if (!options.dir.empty() && !options.wants("disk")) base::fail(ErrorKind::config, "--dir is about the disk: sluice bench disk --dir {}", options.dir);
  if (!options.model.empty() && !options.wants("compute"))
    base::fail(ErrorKind::config, "--model is about compute: sluice bench compute --model {}", options.model);
  if (options.threads > 0 && !options.wants("adam") && !options.wants("compute") && !options.wants("comm"))
    base::fail(ErrorKind::config, "--threads is about adam, compute and comm: sluice bench adam --threads {}", options.threads);
  if (!options.dir.empty() && !std::filesystem::is_directory(options.dir)) base::fail(ErrorKind::config, "--dir {}: no such folder", options.dir);
}

void check(const Options& options, const comm::LaunchEnvironment& launch) {
  if (options.named("comm") && launch.world == 1)
    base::fail(ErrorKind::config, "comm is how fast ranks exchange, and there is one: sluice bench comm --nproc N, or start it with torchrun, mpirun or srun");
  const bool others = std::ranges::any_of(options.parts, [](const std::string& part) { return part != "comm"; });
  if (launch.world > 1 && launch.launcher != comm::Launcher::nproc && (options.parts.empty() || others))
    base::fail(ErrorKind::config, "{} has started {} ranks, which can only measure comm together: sluice bench comm; the other parts without a launcher",
               comm::to_string(launch.launcher), launch.world);
}

std::unique_ptr<gpu::Device> make_device(const Options& options, uint64_t sharing) {
  gpu::EmulatedOptions emulated;
  emulated.memory = engine::automatic_memory() / sharing;
  emulated.compute_threads = options.threads;
  return gpu::make_emulated_device(emulated);
}

CommBench measure_ranks(const Options& options, const BenchOptions& o, RankSession& ranks) {
  const auto device = make_device(options, ranks.on_this_host());
  const auto comm = ranks.make_comm({.device = device.get()});
  return ranks.guard([&] {
    CommBench bench = bench_comm(o, *comm, ranks.on_this_host(), *device);
    comm->control().close();
    return bench;
  });
}

// With several ranks comm comes first: then all but the first one leave, which has the machine for itself.
int measure(const Options& options, RankSession& ranks) {
  if (!ranks.first()) spdlog::set_level(spdlog::level::warn);
  const BenchOptions o{.directory = options.dir.empty() ? "." : options.dir,
                       .seconds = options.seconds,
                       .threads = options.threads,
                       .model = model_named(options.model.empty() ? "SmolLM2-135M" : options.model),
                       .strict = options.strict};
  if (ranks.first()) check_writable("--out", options.out);
  const bool goes_on = ranks.first() && !options.out.empty() && std::filesystem::exists(options.out);
  const offload::Machine known = goes_on ? configs::read_machine(options.out) : offload::Machine{};

  Bench bench;
  const auto part = [&](const char* name, auto& to, const auto& measure) {
    if (!options.wants(name)) return;
    spdlog::info("measuring {}", name);
    to = measure();
  };
  if (ranks.several()) part("comm", bench.comm, [&] { return measure_ranks(options, o, ranks); });
  if (!ranks.first()) return 0;
  const auto device = make_device(options, 1);
  part("memory", bench.memory, [&] { return bench_memory(o); });
  part("adam", bench.adam, [&] { return bench_adam(o); });
  part("copy", bench.copy, [&] { return bench_copy(o, *device); });
  part("compute", bench.compute, [&] { return bench_compute(o, *device); });
  part("disk", bench.disk, [&] { return bench_disk(o); });
  if (options.all()) {
    spdlog::info("measuring everything at once");
    bench.together = bench_together(o, *device);
  }
  if (options.sustained) {
    spdlog::info("writing until the rate is flat, at most {:.0f} s", options.most);
    bench.sustained = bench_sustained(o, options.most);
  }

  const offload::Machine machine = profile_of(bench, o, known);
  if (!options.out.empty()) configs::write_machine(machine, options.out);
  if (goes_on) spdlog::info("{} keeps what was not measured now", options.out);
  if (options.json) {
    nlohmann::ordered_json document{{"machine", machine.name}};
    document.update(bench_json(bench));
    fmt::print("{}\n", document.dump(2));
  } else {
    fmt::print("{}\n{}", machine.name, bench_text(bench));
  }
  return 0;
}

int run_bench(const Options& options) {
  check(options);
  const RankStart started = start_ranks(options.nproc);
  if (started.exit_code) return *started.exit_code;
  check(options, started.launch);
  RankSession ranks(started.launch);
  return ranks.guard([&] { return measure(options, ranks); });
}

}  // namespace

void add_bench(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(app, context, "bench", "Measure what this machine reaches, and how near that is to its limits", options, run_bench, Workers::ranks);
  command->add_option("PART", options->parts, "all (default), disk, copy, adam, memory, compute, or between ranks comm; about ten seconds each")
      ->type_name("")
      ->check(CLI::IsMember({"all", "disk", "copy", "adam", "memory", "compute", "comm"}).description(""));
  command->add_option("--dir", options->dir, "Folder on the disk to measure (default: here)")->type_name("DIR");
  command->add_option("--out", options->out, "Write the rates as a machine profile, for sluice plan --machine FILE; into one that exists, what is not measured stays")->type_name("FILE");
  command->add_option("--model", options->model, "Model whose layer and head are computed: a folder or a known name (default: SmolLM2-135M)")->type_name("DIR|NAME");
  command->add_option("--seconds", options->seconds, "Of each part")->type_name("S")->check(CLI::Range(0.1, 3600.0));
  command->add_option("--threads", options->threads, "Of adam, compute and comm (default: all cores this process may use)")->type_name("N")->check(CLI::Range(0, 4096));
  command->add_option("--nproc", options->nproc, "Start so many ranks on this machine, for comm; the other parts come after it, in one of them")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  CLI::Option* sustained = command->add_flag("--sustained", options->sustained,
                                             "Write to the disk until the rate is flat and a quarter of what is free (256 GiB at most) is written: what the drive keeps up when its cache is full");
  command->add_option("--most", options->most, "Seconds after which --sustained ends though the rate is not flat")
      ->type_name("S")
      ->check(CLI::Range(1.0, 86400.0))
      ->needs(sustained);
  command->footer(
      "Medians of several rounds after a warm-up; spread is (largest - smallest) / median; processor time is that of the whole process,\n"
      "the kernel's part included. `all` ends with everything at once, as a step does it, and has comm only with --nproc. Nothing else should be\n"
      "running. The device is the emulated one; a GPU is measured by sluice plan, looked at by sluice doctor, and checked by scripts/gpu-check.");
}

}  // namespace sluice::apps
