#include <gtest/gtest.h>

#include <set>

#include "configs/keys.h"

namespace sluice::configs {
namespace {

TEST(Keys, EachHasOnePathAndAHelp) {
  std::set<std::string> paths;
  for (const Key& key : keys()) {
    EXPECT_TRUE(paths.insert(key.path).second) << key.path;
    EXPECT_FALSE(key.help.empty()) << key.path;
    EXPECT_FALSE(key.allowed.empty()) << key.path;
    EXPECT_FALSE(is_section(key.path)) << key.path << " is a key and a section";
    EXPECT_EQ(not_built_yet(key.path), nullptr) << key.path;
  }
}

TEST(Keys, DefaultsAreAllowedByTheirOwnKey) {
  const RunConfig defaults;
  for (const Key& key : keys()) {
    const Json value = key.write(defaults);
    RunConfig copy;
    if (value.is_null()) continue;
    EXPECT_TRUE(key.read(copy, value)) << key.path << " = " << show(value);
  }
}

TEST(Keys, EditDistance) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", "abc"), 0u);
  EXPECT_EQ(edit_distance("stpes", "steps"), 1u);  // neighbours swapped
  EXPECT_EQ(edit_distance("ca", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(Keys, NearestName) {
  EXPECT_EQ(nearest_key("stpes"), "steps");
  EXPECT_EQ(nearest_key("optimiser"), "optimizer");
  EXPECT_EQ(nearest_key("gradient_accumulation"), "gradient_accumulation_steps");
  EXPECT_EQ(nearest_key("micro_batch_size_per_gpu"), "train_micro_batch_size_per_gpu");
  EXPECT_EQ(nearest_key("zero_optimization.offload_params"), "zero_optimization.offload_param");
  EXPECT_EQ(nearest_key("run.eval_evry"), "run.eval_every");
  EXPECT_EQ(nearest_key("weight_decay"), "optimizer.params.weight_decay");
  EXPECT_EQ(nearest_key("optimizer.lr"), "optimizer.params.lr");
  EXPECT_EQ(nearest_key("data.seed"), "run.seed");
  EXPECT_FALSE(nearest_key(std::string(100000, 'x')).empty());
}

}  // namespace
}  // namespace sluice::configs
