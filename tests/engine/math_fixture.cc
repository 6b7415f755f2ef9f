#include "tests/engine/math_fixture.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>

#include "base/error.h"
#include "engine/safetensors.h"
#include "tests/paths.h"

namespace sluice::engine {
namespace {

at::ScalarType stored_type(const std::string& dtype) {
  if (dtype == "F32") return at::kFloat;
  if (dtype == "BF16") return at::kBFloat16;
  SLUICE_CHECK(dtype == "I64", "unexpected type in a reference file: " + dtype);
  return at::kLong;
}

offload::ModelDesc describe(const HfConfig& config, const std::vector<std::string>& frozen) {
  offload::ModelDesc desc = describe_model(config);
  for (auto& block : desc.blocks) {
    for (auto& tensor : block.tensors) {
      tensor.trainable = std::none_of(frozen.begin(), frozen.end(),
                                      [&](const auto& end) { return tensor.name.ends_with(end); });
    }
  }
  return desc;
}

at::Tensor value_view(const offload::BlockPlace& block, const offload::TensorPlace& place,
                      const at::Tensor& flat) {
  const uint64_t start = place.offset + (place.trainable ? 0 : block.padded_trainable());
  return flat.narrow(0, static_cast<int64_t>(start), static_cast<int64_t>(place.count)).view(place.shape);
}

}  // namespace

std::filesystem::path test_model_folder(const std::string& name) {
  return test_models() / name;
}

std::map<std::string, at::Tensor> read_tensors(const std::filesystem::path& path) {
  const PlainFile file = PlainFile::open(path, base::ErrorKind::data);
  const SafetensorsHeader header = read_safetensors_header(file);
  std::map<std::string, at::Tensor> tensors;
  for (const TensorEntry& entry : header.tensors) {
    at::Tensor t = at::empty(entry.shape, at::TensorOptions().dtype(stored_type(entry.dtype)));
    file.read_at(header.data_start + entry.begin, t.data_ptr(), static_cast<size_t>(entry.end - entry.begin));
    tensors.emplace(entry.name, t);
  }
  return tensors;
}

std::vector<MicroBatch> read_batches(const std::filesystem::path& model_folder) {
  const auto tensors = read_tensors(model_folder / "batches.safetensors");
  std::vector<MicroBatch> batches;
  for (int k = 0; tensors.contains("tokens." + std::to_string(k)); ++k) {
    const std::string suffix = "." + std::to_string(k);
    MicroBatch batch{tensors.at("tokens" + suffix),
                     tensors.at("targets" + suffix),
                     tensors.at("positions" + suffix),
                     {},
                     0};
    for (int64_t row = 0; row < batch.tokens.size(0); ++row) {
      const at::Tensor& starts = tensors.at("starts" + suffix + "." + std::to_string(row));
      const auto* first = starts.const_data_ptr<int64_t>();
      batch.pieces.emplace_back(first, first + starts.numel());
    }
    batch.trained = static_cast<uint64_t>(batch.targets.ne(-100).sum().item<int64_t>());
    batches.push_back(std::move(batch));
  }
  return batches;
}

namespace {
offload::Schema schema_of(at::ScalarType type) {
  return type == at::kBFloat16 ? offload::Schema::bf16 : type == at::kHalf ? offload::Schema::fp16 : offload::Schema::fp32;
}
}  // namespace

MathModel::MathModel(const HfConfig& c, at::ScalarType type, const std::vector<std::string>& frozen,
                     ComputeOptions options)
    : config(c),
      layout(describe(c, frozen), schema_of(type),
             offload::kLeafElements) {
  options.pad_token = c.pad_token;
  model = make_model(config, layout, options);
  for (const offload::BlockPlace& block : layout.blocks()) {
    BlockWeights w{
        at::zeros({static_cast<int64_t>(block.device_elements())}, at::TensorOptions().dtype(type)), {}};
    if (block.trainable > 0)
      w.grad = at::zeros({static_cast<int64_t>(block.trainable)}, at::TensorOptions().dtype(at::kFloat));
    blocks.push_back(w);
  }
  if (layout.tied() && blocks[0].grad.defined()) tied_grad_ = at::zeros_like(blocks[0].grad);
}

void MathModel::load(const HfReader& reader) {
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (const auto& place : layout.blocks()[b].tensors) {
      at::Tensor value = at::empty(place.shape, at::TensorOptions().dtype(at::kFloat));
      reader.read(place.name, 0, place.count, value.data_ptr<float>());
      value_view(layout.blocks()[b], place, blocks[b].flat).copy_(value);
    }
  }
}

void MathModel::randomize(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (const auto& place : layout.blocks()[b].tensors) {
      at::Tensor value = at::empty(place.shape, at::TensorOptions().dtype(at::kFloat));
      const bool norm = place.name.ends_with("norm.weight") ||
                        (place.name.find("ln_") != std::string::npos && place.name.ends_with("weight"));
      for (float *p = value.data_ptr<float>(), *end = p + value.numel(); p < end; ++p)
        *p = (norm ? 1 : 0) + 0.1f * normal(random);
      value_view(layout.blocks()[b], place, blocks[b].flat).copy_(value);
    }
  }
}

void MathModel::to(at::Device device) {
  for (BlockWeights& w : blocks) {
    w.flat = w.flat.to(device);
    if (w.grad.defined()) w.grad = w.grad.to(device);
  }
  if (tied_grad_.defined()) tied_grad_ = tied_grad_.to(device);
}

BlockWeights MathModel::matrix() const {
  return layout.tied() ? BlockWeights{blocks.front().flat, tied_grad_} : blocks.back();
}

double MathModel::step(const StepOptions& options) {
  for (BlockWeights& w : blocks) {
    if (w.grad.defined()) w.grad.zero_();
  }
  if (tied_grad_.defined()) tied_grad_.zero_();
  const auto layers = static_cast<uint32_t>(config.layers);
  const size_t micros = options.batches.size();
  uint64_t trained = 0;
  for (const MicroBatch& batch : options.batches) trained += batch.trained;
  const uint32_t lowest = layout.lowest_trainable_block().value_or(layers + 1);
  // inputs[layer][micro]; the last row is the head's.
  std::vector<std::vector<at::Tensor>> inputs(layers + 1, std::vector<at::Tensor>(micros));
  std::vector<std::vector<LayerGraph>> graphs(layers, std::vector<LayerGraph>(micros));
  for (size_t m = 0; m < micros; ++m) inputs[0][m] = model->embed(blocks[0], options.batches[m]);
  for (uint32_t i = 0; i < layers; ++i) {
    for (size_t m = 0; m < micros; ++m) {
      if (options.keep_graphs) {
        graphs[i][m] = model->forward_graph(i, blocks[i + 1], inputs[i][m], options.batches[m]);
        inputs[i + 1][m] = graphs[i][m].output.detach();
      } else {
        inputs[i + 1][m] = model->forward(i, blocks[i + 1], inputs[i][m], options.batches[m]);
      }
    }
  }
  double loss = 0;
  std::vector<at::Tensor> grads(micros);
  for (size_t m = 0; m < micros; ++m) {
    auto result = model->loss(blocks.back(), matrix(), inputs[layers][m], options.batches[m],
                              loss_scale / static_cast<double>(trained), true);
    loss += result.loss_sum.item<double>();
    grads[m] = result.grad_input;
  }
  for (uint32_t i = layers; i-- > 0 && lowest <= i + 1;) {
    for (size_t m = 0; m < micros; ++m) {
      LayerGraph graph = options.keep_graphs
                             ? std::move(graphs[i][m])
                             : model->forward_graph(i, blocks[i + 1], inputs[i][m], options.batches[m]);
      grads[m] = model->backward(i, std::move(graph), blocks[i + 1], grads[m], lowest <= i);
    }
  }
  if (lowest == 0) {
    for (size_t m = 0; m < micros; ++m) model->embed_backward(blocks[0], grads[m], options.batches[m]);
  }
  return loss / static_cast<double>(trained);
}

double MathModel::evaluate(const std::vector<MicroBatch>& batches) {
  double loss = 0;
  uint64_t trained = 0;
  for (const MicroBatch& batch : batches) {
    at::Tensor x = model->embed(blocks[0], batch);
    for (uint32_t i = 0; i < static_cast<uint32_t>(config.layers); ++i)
      x = model->forward(i, blocks[i + 1], x, batch);
    loss += model->loss(blocks.back(), matrix(), x, batch, 1, false).loss_sum.item<double>();
    trained += batch.trained;
  }
  return loss / static_cast<double>(trained);
}

std::map<std::string, at::Tensor> MathModel::gradients(at::ScalarType wire) const {
  std::map<std::string, at::Tensor> result;
  const auto rounded = [&](const at::Tensor& t) { return t.to(wire).to(at::kFloat) / loss_scale; };
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (const auto& place : layout.blocks()[b].tensors) {
      if (!place.trainable) continue;
      const auto view = [&](const at::Tensor& flat) {
        return flat.narrow(0, static_cast<int64_t>(place.offset), static_cast<int64_t>(place.count))
            .view(place.shape);
      };
      at::Tensor grad = rounded(view(blocks[b].grad)).clone();
      if (b == 0 && tied_grad_.defined()) grad.add_(rounded(view(tied_grad_)));
      result.emplace(place.name, grad);
    }
  }
  return result;
}

HfConfig tiny_config() {
  HfConfig c;
  c.architecture = "LlamaForCausalLM";
  c.hidden = 96;
  c.intermediate = 160;
  c.layers = 2;
  c.heads = 6;
  c.kv_heads = 2;
  c.head_dim = 16;
  c.vocab = 331;  // neither a multiple of a vector nor of a chunk
  c.max_positions = 512;
  c.norm_eps = 1e-5;
  c.rope_theta = 10000;
  c.tied = c.attention_bias = c.attention_out_bias = c.mlp_bias = true;
  return c;
}

HfConfig tiny_gpt2(double dropout) {
  HfConfig c = tiny_config();
  c.family = Family::gpt2;
  c.architecture = "GPT2LMHeadModel";
  c.kv_heads = c.heads;
  c.max_positions = 150;
  c.learned_positions = true;
  c.embedding_dropout = c.attention_dropout = c.residual_dropout = dropout;
  return c;
}

MicroBatch random_batch(const HfConfig& config, int64_t rows, int64_t tokens,
                        const std::vector<std::vector<int32_t>>& pieces, uint64_t seed) {
  std::mt19937_64 random(seed);
  const at::TensorOptions longs = at::TensorOptions().dtype(at::kLong);
  MicroBatch batch{at::empty({rows, tokens}, longs), at::empty({rows, tokens}, longs),
                   at::empty({rows, tokens}, longs), pieces, 0};
  auto *token = batch.tokens.data_ptr<int64_t>(), *target = batch.targets.data_ptr<int64_t>(),
       *position = batch.positions.data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    const auto& starts = pieces[static_cast<size_t>(row)];
    int64_t begin = 0;
    for (int64_t i = 0; i < tokens; ++i) {
      if (std::find(starts.begin(), starts.end(), i) != starts.end()) begin = i;
      const int64_t at = row * tokens + i;
      token[at] = static_cast<int64_t>(random() % static_cast<uint64_t>(config.vocab));
      target[at] =
          random() % 5 == 0 ? -100 : static_cast<int64_t>(random() % static_cast<uint64_t>(config.vocab));
      position[at] = i - begin;
      batch.trained += target[at] != -100;
    }
  }
  return batch;
}

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor exact = b.to(at::kDouble);
  return (a.to(at::kDouble) - exact).norm().item<double>() / exact.norm().item<double>();
}

}  // namespace sluice::engine
