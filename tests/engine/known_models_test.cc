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
    {"Qwen2.5-0.5B", 494'032'768},  {"Qwen2.5-1.5B", 1'543'714'304}, {"Qwen2.5-3B", 3'085'938'688},  {"Qwen2.5-7B", 7'615'616'512},
    {"Qwen2.5-14B", 14'770'033'664}, {"Qwen2.5-32B", 32'763'876'352}, {"Qwen2.5-72B", 72'706'203'648},
    {"Qwen3-0.6B", 596'049'920},    {"Qwen3-1.7B", 1'720'574'976},  {"Qwen3-4B", 4'022'468'096},    {"Qwen3-8B", 8'190'735'360},
    {"Qwen3-14B", 14'768'307'200},  {"Qwen3-32B", 32'762'123'264},
    {"Gemma-2-2B", 2'614'341'888},  {"Gemma-2-9B", 9'241'705'984},  {"Gemma-2-27B", 27'227'128'320},
    {"Gemma-3-270M", 268'098'176},  {"Gemma-3-1B", 999'885'952},
    // Without the vision tower.
    {"Gemma-3-4B", 3'880'263'168},  {"Gemma-3-12B", 11'766'034'176}, {"Gemma-3-27B", 27'009'346'304},
};

TEST(KnownModels, HaveThePublishedNumberOfParameters) {
  for (const std::string& name : known_models()) {
    ASSERT_TRUE(kPublished.contains(name)) << name;
    EXPECT_EQ(parameters(model_of_sizes("llama", name)), kPublished.at(name)) << name;
  }
  EXPECT_EQ(known_models().size(), kPublished.size());
}

TEST(KnownModels, GemmaIsPlannedAndNotTrained) {
  const HfConfig config = model_of_sizes("llama", "Gemma-3-1B");
  const offload::Layout layout(describe_model(config), offload::Schema::bf16, 2 << 20);
  expect_error(base::ErrorKind::config, "can be planned, but not trained", [&] { make_model(config, layout, {}); });
}

TEST(KnownModels, AFamilyThatContradictsTheNameIsRefused) {
  EXPECT_EQ(model_of_sizes("gpt2", "GPT-2-XL").heads, 25);
  expect_error(base::ErrorKind::config, "is of the family llama", [] { model_of_sizes("gpt2", "Llama-3.1-8B"); });
  expect_error(base::ErrorKind::config, "no model that is known", [] { model_of_sizes("llama", "Llama-9"); });
  expect_error(base::ErrorKind::config, "llama, mistral", [] { model_of_sizes("bert", "GPT-2-XL"); });
}

}  // namespace
}  // namespace sluice::engine
