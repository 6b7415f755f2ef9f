#include "configs/explain.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "configs/resolve.h"
#include "tests/configs/sample.h"

namespace sluice::configs {
namespace {

RunConfig read_back(const RunConfig& config) {
  return parse_config(resolved_json(config).dump(2), "stored.json");
}

TEST(Explain, ResolvedConfigReadsBackTheSame) {
  const std::vector<std::vector<std::string>> variants = {
      {},
      {"zero_optimization=null"},
      {"steps=null", "epochs=2.5"},
      {"steps=0"},
      {"bf16.enabled=false", "optimizer.type=Adam", "optimizer.params.adam_w_mode=false",
       "optimizer.params.no_decay=[]"},
      {"scheduler={\"type\":\"WarmupCosineLR\",\"params\":{\"warmup_num_steps\":3,\"cos_min_ratio\":0.1}}"},
      {"scheduler={\"type\":\"WarmupDecayLR\",\"params\":{\"warmup_num_steps\":3,\"warmup_type\":\"log\"}}"},
      {"memory={\"gpu\":\"700MiB\",\"host\":\"auto\"}",
       "execution={\"keep_graphs\":\"all\",\"pools\":{\"state\":5}}", "machine.compute_threads=2"},
      {"data.eval=null", "storage.durable=none", "storage.paths=/x",
       "optimizer.params.lr=1.2345678901234567e-5"},
  };
  for (const auto& set : variants) {
    const RunConfig config = sample(set);
    const Json once = resolved_json(config);
    EXPECT_EQ(once.dump(), resolved_json(read_back(config)).dump());
    EXPECT_TRUE(compare_numeric_settings(config, read_back(config)).empty());
  }
}

TEST(Explain, StepsChosenFromEpochsAreNotStored) {
  RunConfig c = sample({"steps=null", "epochs=2"});
  choose_steps(&c, 40, "2 epochs");
  EXPECT_EQ(read_back(c).epochs, 2.0);
  EXPECT_FALSE(read_back(c).steps.has_value());
}

// "reasons" says why a file has its values; one that --set has replaced is no longer explained.
TEST(Explain, ReasonsOfTheFileStandBesideItsValues) {
  std::string text = kSample;
  text.insert(text.rfind('}'), R"(, "reasons": {"steps": "ten are enough", "gradient_accumulation_steps": "it fits"}
)");
  const auto origin = [&](const RunConfig& config, const std::string& key) {
    for (const Explained& row : explain(config))
      if (row.key == key) return row.origin;
    return std::string();
  };
  const RunConfig config = parse_config(text, "sample.json"), other = parse_config(text, "sample.json", {.set = {"steps=11"}, .purpose = Purpose::training});
  EXPECT_EQ(origin(config, "steps"), "sample.json:4: ten are enough");
  EXPECT_EQ(origin(config, "gradient_accumulation_steps"), "sample.json:6: it fits");
  EXPECT_EQ(origin(other, "steps"), "--set");
  EXPECT_EQ(resolved_json(config).dump(), resolved_json(sample()).dump());
  for (const auto& [reasons, message] : {std::pair{R"({"stesp": "x"})", "unknown key \"stesp\"; the nearest known key is \"steps\""},
                                         {R"({"steps": 3})", "reasons: steps = 3: a text is needed"},
                                         {R"(["x"])", "texts by key, in braces"}}) {
    std::string bad = kSample;
    bad.insert(bad.rfind('}'), std::string(", \"reasons\": ") + reasons);
    EXPECT_THAT(config_error([&] { parse_config(bad, "sample.json"); }), testing::HasSubstr(message));
  }
}

TEST(Explain, EachValueHasItsOrigin) {
  const auto rows = explain(sample({"run.seed=9"}));
  const auto find = [&](const std::string& key) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const Explained& r) { return r.key == key; });
    return row == rows.end() ? Explained{} : *row;
  };
  EXPECT_EQ(find("run.seed").value, "9");
  EXPECT_EQ(find("run.seed").origin, "--set");
  EXPECT_EQ(find("aio.block_size").value, "4MiB");
  EXPECT_EQ(find("memory.gpu").value, "auto");
  EXPECT_EQ(find("memory.gpu").origin, "default");
  EXPECT_EQ(find("train_batch_size").value, "6");
  EXPECT_EQ(find("optimizer.params.betas").value, "[0.9,0.999]");
  EXPECT_EQ(find("scheduler.params.warmup_num_steps").key, "");  // no scheduler
  EXPECT_EQ(find("epochs").value, "-");
}

TEST(Explain, NumericSettingsThatDiffer) {
  const RunConfig stored = sample();
  const RunConfig free =
      sample({"execution.pools.state=4", "execution.optimizer_threads=1",
              "zero_optimization.offload_param.device=nvme", "steps=20", "storage.tile=65536",
              "memory.gpu=1GiB", "run.dir=/moved", "model.path=/moved"});
  EXPECT_TRUE(compare_numeric_settings(stored, free).empty());
  RunConfig now =
      sample({"train_micro_batch_size_per_gpu=1", "data.sequence_length=32", "model.loss_chunk=1024"});
  choose_compute_threads(&now, 3, "cores");
  std::vector<std::string> keys;
  for (const Difference& d : compare_numeric_settings(stored, now))
    keys.push_back(d.key + " " + d.stored + " -> " + d.now);
  EXPECT_THAT(keys,
              testing::ElementsAre("train_micro_batch_size_per_gpu 2 -> 1", "model.loss_chunk 512 -> 1024",
                                   "data.sequence_length 64 -> 32", "machine.compute_threads auto -> 3"));
}

TEST(Explain, FreeSettingsThatDiffer) {
  const RunConfig stored = sample();
  EXPECT_TRUE(compare_free_settings(stored, stored).empty());
  std::vector<std::string> keys;
  for (const Difference& d : compare_free_settings(stored, sample({"steps=20", "execution.pools.state=4", "data.sequence_length=32"})))
    keys.push_back(d.key + " -> " + d.now);
  EXPECT_THAT(keys, testing::ElementsAre("steps -> 20", "execution.pools.state -> 4"));
}

}  // namespace
}  // namespace sluice::configs
