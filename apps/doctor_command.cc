// sluice doctor: what this machine can do, and how to fix the rest.
#include "apps/command.h"
#include "apps/doctor.h"

namespace sluice::apps {
namespace {

struct Options : CommonOptions {
  std::vector<std::string> dirs;
};

int run(const Options& options) {
  DoctorOptions doctor;
  doctor.dirs.assign(options.dirs.begin(), options.dirs.end());
  doctor.json = options.json;
  return run_doctor(doctor);
}

}  // namespace

void add_doctor(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      app, context, "doctor", "Check what this machine can do, and say how to fix the rest", options, run, Workers::ranks);
  command
      ->add_option("--dir", options->dirs,
                   "Folder for runs or stores to check as well: file system, speed, space; repeatable")
      ->type_name("DIR")
      ->allow_extra_args(false);
}

}  // namespace sluice::apps
