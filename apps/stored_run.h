// A finished or stopped run, opened for reading.
#pragma once
#include <filesystem>
#include <memory>

#include "configs/run_config.h"
#include "engine/hf_reader.h"
#include "offload/store.h"

namespace sluice::apps {

// Holds the store's shared locks: no run can go on meanwhile. Errors: config (no run), model, disk.
struct StoredRun {
  explicit StoredRun(const std::filesystem::path& run_dir, bool strict = false);

  configs::RunConfig config;
  engine::HfReader reader;  // of the source model
  offload::OpenReport report;
  std::unique_ptr<offload::Store> store;
  const offload::Layout& layout;  // of the store, which may have been written by several ranks
};

}  // namespace sluice::apps
