#include "engine/random_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "engine/hf_reader.h"
#include "engine/known_models.h"
#include "engine/model.h"
#include "tests/paths.h"

namespace sluice::engine {
namespace {

namespace fs = std::filesystem;

class RandomModelTest : public testing::Test {
 protected:
  RandomModelTest() {
    std::string name = binary_dir() / "random-model-XXXXXX";
    folder_ = mkdtemp(name.data());
    options_.config = model_of_sizes("llama", {{"hidden_size", 64}, {"intermediate_size", 96}, {"num_hidden_layers", 2}, {"num_attention_heads", 4}, {"vocab_size", 512}});
    options_.out = folder_ / "model";
  }
  ~RandomModelTest() override { fs::remove_all(folder_); }

  std::vector<float> values(const std::string& tensor) {
    const HfReader reader(options_.out);
    std::vector<float> v(reader.tensor(tensor).count());
    reader.read(tensor, 0, v.size(), v.data());
    return v;
  }

  fs::path folder_;
  RandomModelOptions options_;
};

TEST_F(RandomModelTest, IsAModelFolderWithNormalMatricesAndNormsOfOne) {
  write_random_model(options_);
  const HfReader reader(options_.out);
  reader.check(expected_tensors(describe_model(reader.config())));
  EXPECT_EQ(reader.config().hidden, 64);
  for (const float v : values("model.norm.weight")) EXPECT_EQ(v, 1.0f);
  double sum = 0, squares = 0, neighbours = 0;
  const std::vector<float> w = values("model.embed_tokens.weight");
  for (size_t i = 0; i < w.size(); ++i) {
    sum += w[i];
    squares += double{w[i]} * w[i];
    if (i > 0) neighbours += double{w[i]} * w[i - 1];
  }
  const auto n = static_cast<double>(w.size());
  EXPECT_NEAR(sum / n, 0, 5 * 0.02 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 0.0005);
  EXPECT_NEAR(neighbours / squares, 0, 5 / std::sqrt(n));
}

TEST_F(RandomModelTest, TheSameWithAnyThreadsAndShardsAndAnotherWithAnotherSeed) {
  write_random_model(options_);
  const auto first = values("model.layers.1.mlp.up_proj.weight");
  const std::string tensor = "model.layers.1.mlp.up_proj.weight";
  options_.out = folder_ / "sharded";
  options_.threads = 3;
  options_.shard = 50'000;
  write_random_model(options_);
  EXPECT_GT(HfReader(options_.out).files().size(), 3u);
  EXPECT_EQ(values(tensor), first);
  options_.out = folder_ / "other";
  options_.seed = 1;
  write_random_model(options_);
  EXPECT_NE(values(tensor), first);
}

TEST_F(RandomModelTest, AFolderInUseIsLeftAlone) {
  fs::create_directories(options_.out / "something");
  EXPECT_THROW(write_random_model(options_), base::Error);
  EXPECT_TRUE(fs::exists(options_.out / "something"));
  EXPECT_FALSE(fs::exists(options_.out.string() + ".tmp"));
}

}  // namespace
}  // namespace sluice::engine
