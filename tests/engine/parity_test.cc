// Losses and gradients against transformers, from the files of tools/make_test_models.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/engine/math_fixture.h"

namespace sluice::engine {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

struct Reference {
  explicit Reference(const std::string& name)
      : folder(test_model_folder(name)),
        reader(folder / "model"),
        batches(read_batches(folder)),
        exact(read_tensors(folder / "gradients_f64.safetensors")),
        rounded(read_tensors(folder / "gradients_bf16.safetensors")) {
    std::ifstream(folder / "reference.json") >> json;
  }
  // Batches 2-5 are the micro-batches of the accumulated step.
  std::vector<MicroBatch> accumulated() const {
    std::vector<MicroBatch> result;
    for (const int k : json.at("accumulated").at("batches"))
      result.push_back(batches[static_cast<size_t>(k)]);
    return result;
  }

  std::filesystem::path folder;
  HfReader reader;
  std::vector<MicroBatch> batches;
  Tensors exact, rounded;
  nlohmann::json json;
};

MathModel load_model(const Reference& reference, at::ScalarType type) {
  MathModel model(reference.reader.config(), type);
  model.load(reference.reader);
  return model;
}

double error_square(const at::Tensor& a, const at::Tensor& exact) {
  return (a.to(at::kDouble) - exact.to(at::kDouble)).square().sum().item<double>();
}

// Relative error of all gradients together, against the reference of `key`.
double whole_error(const Tensors& grads, const Reference& reference, const std::string& key) {
  double error = 0, size = 0;
  for (const auto& [name, grad] : grads) {
    const at::Tensor& exact = reference.exact.at(key + "/" + name);
    error += error_square(grad, exact);
    size += exact.to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(error / size);
}

Tensors of_key(const Tensors& all, const std::string& key) {
  Tensors result;
  for (const auto& [name, tensor] : all) {
    if (name.starts_with(key + "/")) result.emplace(name.substr(key.size() + 1), tensor);
  }
  return result;
}

constexpr const char* kModels[] = {"tied", "untied", "tied_fp32", "llama3", "biased", "mistral", "gpt2", "gpt2_hub", "qwen2", "qwen3"};

class Parity : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, Parity, testing::ValuesIn(kModels),
                         [](const auto& name) { return std::string(name.param); });

void expect_exact(const Tensors& grads, const Reference& reference, const std::string& key) {
  EXPECT_EQ(grads.size(), of_key(reference.exact, key).size());
  for (const auto& [name, grad] : grads)
    EXPECT_LT(relative_error(grad, reference.exact.at(key + "/" + name)), 1e-4) << key << " " << name;
}

TEST_P(Parity, Fp32LossAndEveryGradient) {
  const Reference reference(GetParam());
  MathModel model = load_model(reference, at::kFloat);
  for (size_t k = 0; k < reference.batches.size(); ++k) {
    const double loss = model.step({{reference.batches[k]}}),
                 exact = reference.json["batches"][k]["loss_f64"];
    EXPECT_LT(std::abs(loss - exact) / exact, 1e-5) << "batch " << k;
    expect_exact(model.gradients(), reference, std::to_string(k));
  }
}

TEST_P(Parity, Fp32Accumulation) {
  const Reference reference(GetParam());
  MathModel model = load_model(reference, at::kFloat);
  const double loss = model.step({reference.accumulated()}),
               exact = reference.json["accumulated"]["loss_f64"];
  EXPECT_LT(std::abs(loss - exact) / exact, 1e-5);
  expect_exact(model.gradients(), reference, "accumulated");
}

// bf16 errors are of one size with transformers': compared as the root mean square over all batches of a
// model.
TEST_P(Parity, Bf16GradientErrorIsThatOfTransformers) {
  const Reference reference(GetParam());
  MathModel model = load_model(reference, at::kBFloat16);
  double ours = 0, theirs = 0;
  for (size_t k = 0; k < reference.batches.size(); ++k) {
    model.step({{reference.batches[k]}});
    const std::string key = std::to_string(k);
    ours += std::pow(whole_error(model.gradients(), reference, key), 2);
    theirs += std::pow(whole_error(of_key(reference.rounded, key), reference, key), 2);
  }
  RecordProperty("gradient_ratio", std::to_string(std::sqrt(ours / theirs)));
  EXPECT_LT(std::sqrt(ours), 1.3 * std::sqrt(theirs));
}

// One loss is one rounding error of either sign, so this needs more than the batches of one model.
TEST(ParityOfAllModels, Bf16LossErrorIsThatOfTransformers) {
  double ours = 0, theirs = 0;
  for (const char* name : kModels) {
    const Reference reference(name);
    MathModel model = load_model(reference, at::kBFloat16);
    for (size_t k = 0; k < reference.batches.size(); ++k) {
      const auto& numbers = reference.json["batches"][k];
      const double exact = numbers["loss_f64"];
      ours += std::pow(model.evaluate({reference.batches[k]}) / exact - 1, 2);
      theirs += std::pow(numbers["loss_bf16"].get<double>() / exact - 1, 2);
    }
  }
  RecordProperty("loss_ratio", std::to_string(std::sqrt(ours / theirs)));
  EXPECT_LT(std::sqrt(ours), 1.3 * std::sqrt(theirs));
}

// fp16 with a scaled loss, against what transformers makes of the same.
TEST(ParityOfAllModels, Fp16ErrorsAreThoseOfTransformers) {
  double our_loss = 0, their_loss = 0, ours = 0, theirs = 0;
  for (const char* name : kModels) {
    const Reference reference(name);
    MathModel model = load_model(reference, at::kHalf);
    const auto& fp16 = reference.json["fp16"];
    model.loss_scale = fp16["scale"];
    for (size_t i = 0; i < fp16["batches"].size(); ++i) {
      const size_t k = fp16["batches"][i];
      const double exact = reference.json["batches"][k]["loss_f64"];
      our_loss += std::pow(model.step({{reference.batches[k]}}) / exact - 1, 2);
      their_loss += std::pow(fp16["losses"][i].get<double>() / exact - 1, 2);
      ours += std::pow(whole_error(model.gradients(at::kHalf), reference, std::to_string(k)), 2);
      theirs += std::pow(fp16["gradient_errors"][i].get<double>(), 2);
    }
  }
  RecordProperty("loss_ratio", std::to_string(std::sqrt(our_loss / their_loss)));
  RecordProperty("gradient_ratio", std::to_string(std::sqrt(ours / theirs)));
  EXPECT_LT(std::sqrt(our_loss), 1.3 * std::sqrt(their_loss));
  EXPECT_LT(std::sqrt(ours), 1.3 * std::sqrt(theirs));
}

// Accumulation 4, tied: fp32 sums on our side; transformers' side sums its bf16 gradients in fp32.
TEST(TiedAccumulation, Bf16ErrorAgainstFloat64) {
  const Reference reference("tied");
  MathModel model = load_model(reference, at::kBFloat16);
  model.step({reference.accumulated()});
  const Tensors theirs = of_key(reference.rounded, "accumulated");
  const double their_error = whole_error(theirs, reference, "accumulated");
  EXPECT_LE(whole_error(model.gradients(at::kFloat), reference, "accumulated"), their_error);
  EXPECT_LE(whole_error(model.gradients(at::kBFloat16), reference, "accumulated"), 1.1 * their_error);
  const std::string matrix = "model.embed_tokens.weight";
  const at::Tensor& exact = reference.exact.at("accumulated/" + matrix);
  const double their_matrix = relative_error(theirs.at(matrix), exact);
  EXPECT_LT(relative_error(model.gradients(at::kFloat).at(matrix), exact), their_matrix);
  EXPECT_LT(relative_error(model.gradients(at::kBFloat16).at(matrix), exact), their_matrix);
}

TEST(EvaluationLoss, EqualsTheTrainingLossOfTheSameWeights) {
  const Reference reference("untied");
  MathModel model = load_model(reference, at::kBFloat16);
  EXPECT_EQ(model.evaluate({reference.batches[4]}), model.step({{reference.batches[4]}}));
}

}  // namespace
}  // namespace sluice::engine
