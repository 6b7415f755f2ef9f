// Sizes that are known by name, against the published numbers of parameters.
#include "engine/known_models.h"

#include <algorithm>
#include <map>

#include "engine/model.h"
#include "tests/engine/files_util.h"

namespace sluice::engine {
namespace {

uint64_t parameters(const HfConfig& config) {
  uint64_t count = 0;
  for (const auto& block : describe_model(config).blocks)
    for (const auto& tensor : block.tensors) count += tensor.count();
  return count;
}

// As transformers counts them: a tied matrix once.
const std::map<std::string, uint64_t> kPublished{
    {"GPT-2-124M", 124'439'808},    {"GPT-2-medium", 354'823'168},  {"GPT-2-large", 774'030'080},   {"GPT-2-XL", 1'557'611'200},
    {"SmolLM2-135M", 134'515'008},  {"Llama-3.2-1B", 1'235'814'400}, {"Llama-3.2-3B", 3'212'749'824}, {"Llama-3.1-8B", 8'030'261'248},
    {"Llama-3-70B", 70'553'706'496},
};

TEST(KnownModels, HaveThePublishedNumberOfParameters) {
  for (const std::string& name : known_models()) {
    ASSERT_TRUE(kPublished.contains(name)) << name;
    EXPECT_EQ(parameters(model_of_sizes("llama", name)), kPublished.at(name)) << name;
  }
  EXPECT_EQ(known_models().size(), kPublished.size());
}

TEST(KnownModels, AFamilyThatContradictsTheNameIsRefused) {
  EXPECT_EQ(model_of_sizes("gpt2", "GPT-2-XL").heads, 25);
  expect_error(base::ErrorKind::config, "is of the family llama", [] { model_of_sizes("gpt2", "Llama-3.1-8B"); });
  expect_error(base::ErrorKind::config, "no model that is known", [] { model_of_sizes("llama", "Llama-9"); });
  expect_error(base::ErrorKind::config, "llama, mistral", [] { model_of_sizes("bert", "GPT-2-XL"); });
}

}  // namespace
}  // namespace sluice::engine
