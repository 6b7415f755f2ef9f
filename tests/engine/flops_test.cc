// The FLOP formula against the matrices of each family, counted by hand.
#include "engine/flops.h"

#include <gtest/gtest.h>

#include "engine/known_models.h"
#include "engine/model_source.h"

namespace sluice::engine {
namespace {

struct Case {
  const char* name;
  double matrices;  // elements of a layer's matrices
  double heads_width;
  double head;
};
const Case kCases[] = {
    {"GPT-2-124M", 12.0 * 768 * 768, 768, 50257.0 * 768},
    {"Llama-3.1-8B", 2.0 * 4096 * (4096 + 1024) + 3.0 * 4096 * 14336, 4096, 128256.0 * 4096},
    {"Qwen2.5-7B", 2.0 * 3584 * (3584 + 512) + 3.0 * 3584 * 18944, 3584, 152064.0 * 3584},
    {"Qwen3-4B", 2.0 * 2560 * (4096 + 1024) + 3.0 * 2560 * 9728, 4096, 151936.0 * 2560},  // wider heads than the model
};

TEST(Flops, AreTwoForEveryMultiplyAddOfTheMatricesAndOfCausalAttention) {
  for (const Case& c : kCases) {
    const HfConfig config = model_of_sizes("llama", c.name);
    const offload::Layout layout(describe(config, {}), offload::Schema::bf16, 2 << 20);
    const StepFlops flops{layout, config, 2, 512, 0};
    const double tokens = 1024, forward = 2 * tokens * c.matrices + 2 * tokens * 512 * c.heads_width;
    EXPECT_NEAR(flops.layer_forward(1) / forward, 1, 2e-3) << c.name;  // biases and norms count as little as they are
    EXPECT_NEAR(flops.layer_backward(1, true) / (3 * 2 * tokens * c.matrices + 3.5 * 2 * tokens * 512 * c.heads_width), 1, 2e-3) << c.name;
    EXPECT_EQ(flops.loss(true), 6 * tokens * c.head) << c.name;
    EXPECT_EQ(flops.loss(false), 2 * tokens * c.head) << c.name;
  }
}

TEST(Flops, AFrozenTiedMatrixHasNoWeightGradientHoweverMuchElseIsTrainedBesideIt) {
  const HfConfig config = model_of_sizes("gpt2", "GPT-2-124M");
  ModelSource source;
  source.trainable = {"wpe.weight", "h.*"};
  const offload::Layout layout(describe(config, source), offload::Schema::bf16, 2 << 20);
  const StepFlops flops{layout, config, 1, 512, 0};
  EXPECT_EQ(flops.loss(true), 4 * 512.0 * 50257 * 768);
}

}  // namespace
}  // namespace sluice::engine
