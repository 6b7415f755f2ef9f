#include "apps/stored_run.h"

#include "apps/run_dir.h"
#include "apps/training_options.h"
#include "base/error.h"
#include "engine/model_source.h"

namespace sluice::apps {

namespace {

const std::filesystem::path& model_folder(const configs::RunConfig& config, const std::filesystem::path& run_dir) {
  if (!std::filesystem::is_directory(config.model.path))
    base::fail(base::ErrorKind::model, "the source model {} of the run is gone: no such folder. Put it back, or name its new place as "
               "model.path in {}", config.model.path.string(), RunDir(run_dir).config_file().string());
  return config.model.path;
}

}  // namespace

StoredRun::StoredRun(const std::filesystem::path& run_dir, bool strict)
    : config(RunDir(run_dir).read_run()),
      reader(model_folder(config, run_dir)),
      store(offload::Store::open_read_only(
          run_dir, {engine::describe(reader.config(), model_source(config)), config.schema(), config.storage.tile}, &report,
          storage_paths(config), strict)),
      layout(store->layout()) {}

}  // namespace sluice::apps
