#include "engine/model_source.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>

#include "base/bf16.h"
#include "base/error.h"
#include "base/fp16.h"
#include "engine/model.h"
#include "engine/tile_state.h"

namespace sluice::engine {
namespace {

bool matches(const std::vector<std::string>& globs, const std::string& name) {
  return std::any_of(globs.begin(), globs.end(), [&](const std::string& g) { return fnmatch(g.c_str(), name.c_str(), 0) == 0; });
}

void check_globs(const std::vector<std::string>& globs, const char* key, const offload::ModelDesc& model) {
  for (const std::string& glob : globs) {
    bool used = false;
    for (const auto& block : model.blocks)
      for (const auto& tensor : block.tensors) used = used || matches({glob}, tensor.name);
    if (!used)
      base::fail(base::ErrorKind::config, "{}: \"{}\" matches no tensor of the model. Names look like {} or {}", key, glob,
                 model.blocks.at(0).tensors.at(0).name, model.blocks.at(1).tensors.at(0).name);
  }
}

uint16_t fp16_weight(float value, const std::string& tensor) {
  const uint16_t weight = base::float_to_fp16(value);
  if (std::isinf(base::fp16_to_float(weight)) && std::isfinite(value))
    base::fail(base::ErrorKind::model, "{} has a value of {}, and fp16 ends at 65504: train this model in bf16 (bf16.enabled)", tensor, value);
  return weight;
}

HfReader checked(HfReader reader) {
  reader.check(expected_tensors(describe_model(reader.config())));
  return reader;
}

}  // namespace

offload::ModelDesc describe(const HfConfig& config, const ModelSource& source) {
  offload::ModelDesc model = describe_model(config);
  check_globs(source.trainable, "model.trainable", model);
  for (auto& block : model.blocks) {
    for (auto& tensor : block.tensors) {
      tensor.trainable = matches(source.trainable, tensor.name);
      tensor.group = matches(source.no_decay, tensor.name) ? 1 : 0;
    }
  }
  return model;
}

void check_sequence(const HfConfig& config, uint64_t sequence) {
  if (config.learned_positions && sequence > static_cast<uint64_t>(config.max_positions))
    base::fail(base::ErrorKind::config,
               "data.sequence_length is {}, but this {} has learned positions for {} tokens only: set it to at most {}", sequence,
               config.architecture, config.max_positions, config.max_positions);
}

ModelSetup::ModelSetup(const ModelSource& source)
    : reader(checked(HfReader(source.path))),
      layout(describe(reader.config(), source), source.schema, source.tile, source.world),
      model(make_model(reader.config(), layout, {.loss_chunk = source.loss_chunk, .pad_token = reader.config().pad_token})) {}

ModelSetup::~ModelSetup() = default;

void fill_tile(const HfReader& reader, const offload::Layout& layout, const offload::Tile& tile, std::span<std::byte> weights,
               std::span<std::byte> master) {
  constexpr uint64_t kPiece = 1 << 16;
  std::vector<float> values(kPiece);
  for (const auto& tensor : layout.blocks()[tile.block].tensors) {
    if (tensor.trainable != tile.trainable) continue;
    const uint64_t begin = std::max(tensor.offset, tile.first);
    const uint64_t end = std::min(tensor.offset + tensor.count, tile.first + tile.count);
    for (uint64_t at = begin; at < end; at += kPiece) {
      const uint64_t n = std::min(kPiece, end - at), to = at - tile.first;
      reader.read(tensor.name, at - tensor.offset, n, values.data());
      const cpu_adam::TileState s =
          tile_state(layout.schema(), tile, weights.data(), master.empty() ? nullptr : master.data());
      for (uint64_t i = 0; i < n; ++i) {
        if (s.p != nullptr) s.p[to + i] = values[i];
        if (s.half != nullptr) s.half[to + i] = fp16_weight(values[i], tensor.name);
        if (s.hi == nullptr) continue;
        const base::SplitFloat parts = base::split(values[i]);
        s.hi[to + i] = parts.hi;
        if (s.lo != nullptr) s.lo[to + i] = parts.lo;
      }
    }
  }
}

}  // namespace sluice::engine
