#include "apps/stored_run.h"

#include "apps/run_dir.h"
#include "apps/training_options.h"
#include "engine/model_source.h"

namespace sluice::apps {

StoredRun::StoredRun(const std::filesystem::path& run_dir)
    : config(RunDir(run_dir).read_config(configs::Purpose::reading)),
      reader(config.model.path),
      layout(engine::describe(reader.config(), model_source(config)), config.schema(), config.storage.tile),
      store(offload::Store::open_read_only(run_dir, layout, &report, storage_paths(config))) {}

}  // namespace sluice::apps
