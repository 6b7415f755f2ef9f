// From a config file and --set to a checked RunConfig.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "configs/resolve.h"
#include "configs/run_config.h"

namespace sluice::configs {

struct ReadOptions {
  std::vector<std::string> set;  // "key=value", in order; the last wins
  Purpose purpose = Purpose::training;
  std::optional<uint64_t> world;  // ranks that were started, or are planned for; unset: as the config says
};

// Precedence, lowest first: defaults, the imported "deepspeed" config, the file, --set. Paths inside are
// relative to the current directory, as they are for DeepSpeed; only the file that "deepspeed" names is
// looked up beside the config. Error(config).
RunConfig read_config(const std::filesystem::path& file, const ReadOptions& options = {});

// The same for a text that lies at `file` (for messages, run.dir, and imports). The file need not exist.
RunConfig parse_config(std::string_view text, const std::filesystem::path& file,
                       const ReadOptions& options = {});

}  // namespace sluice::configs
