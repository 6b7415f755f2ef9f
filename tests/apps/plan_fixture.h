// sluice plan on a tiny model on disk (config.json), and on one of 70 B parameters that is only planned (big.json).
#pragma once
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/apps/run_fixture.h"

namespace sluice::apps {

using nlohmann::json;

class PlanFixture : public RunFixture {
 protected:
  void SetUp() override {
    RunFixture::SetUp();
    environment_["XDG_CACHE_HOME"] = at("cache");
    write_all(at("big.json"), R"({"model": {"sizes": "Llama-3-70B"}, "data": {"sequence_length": 4096},
      "gradient_accumulation_steps": 8, "train_micro_batch_size_per_gpu": 1, "storage": {"tbw": "1200TB"},
      "zero_optimization": {"offload_param": {"device": "nvme"}, "offload_optimizer": {"device": "nvme"}}})");
  }
  // On a machine that is the same everywhere, unless `more` says otherwise.
  ProgramResult plan(const std::string& config, const Words& set = {},
                     const Words& more = {"--machine", "rtx4090-128g"}) const {
    Words words{"plan", config};
    for (const std::string& assignment : set) words.insert(words.end(), {"--set", assignment});
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  json plan_json(const std::string& config, const Words& set = {}, int status = 0) const {
    const ProgramResult r = plan(config, set, {"--machine", "rtx4090-128g", "--json"});
    EXPECT_EQ(r.status, status) << r.err;
    return json::parse(r.out);
  }
};

}  // namespace sluice::apps
