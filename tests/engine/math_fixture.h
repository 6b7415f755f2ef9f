// A model folder of build/test_models in memory: flat weights, fp32 gradients, batches, and steps over them
// by hand.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/hf_reader.h"
#include "engine/model.h"

namespace sluice::engine {

// The folder of a test model; fails the test with what to do when it is absent.
std::filesystem::path test_model_folder(const std::string& name);

// All tensors of a safetensors file (F32, BF16, I64) by name.
std::map<std::string, at::Tensor> read_tensors(const std::filesystem::path& file);

// Batches as make_test_models.py stores them.
std::vector<MicroBatch> read_batches(const std::filesystem::path& model_folder);

struct StepOptions {
  std::vector<MicroBatch> batches;  // micro-batches of one step
  bool keep_graphs = false;         // else every layer runs again before its backward
};

// Weights as a run holds them, one flat buffer a block, and one step of vertical order without optimizer.
class MathModel {
 public:
  // frozen: name endings of tensors that are not trained.
  MathModel(const HfConfig& config, at::ScalarType type, const std::vector<std::string>& frozen = {},
            ComputeOptions options = {});
  void load(const HfReader& reader);
  void randomize(uint64_t seed);
  void to(at::Device device);  // weights and gradients; the batches must be there too

  double step(const StepOptions& options);  // zeroes the gradients first; returns the mean loss
  double evaluate(const std::vector<MicroBatch>& batches);
  // fp32 gradients by name; wire: each contribution is rounded to it before the sum.
  std::map<std::string, at::Tensor> gradients(at::ScalarType wire = at::kFloat) const;

  const HfConfig config;
  const offload::Layout layout;
  std::unique_ptr<Model> model;
  std::vector<BlockWeights> blocks;
  double loss_scale = 1;  // of the next step; gradients() takes it out
  BlockWeights matrix() const;  // of the head: the tied embedding with its own gradient, or the head block

 private:
  at::Tensor tied_grad_;
};

HfConfig tiny_config();  // Llama: 2 layers, grouped heads, biases, tied
HfConfig tiny_gpt2(double dropout);  // 2 layers, 150 positions
MicroBatch random_batch(const HfConfig& config, int64_t rows, int64_t tokens,
                        const std::vector<std::vector<int32_t>>& pieces, uint64_t seed);

// |a - b| / |b| in double.
double relative_error(const at::Tensor& a, const at::Tensor& b);

}  // namespace sluice::engine
