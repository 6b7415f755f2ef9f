#include "engine/model.h"

namespace sluice::engine {

offload::ModelDesc describe_model(const HfConfig& config) {
  switch (config.family) {
    case Family::gpt2: return describe_gpt2(config);
    case Family::llama:
    case Family::mistral: break;
  }
  return describe_llama(config);
}

std::unique_ptr<Model> make_model(const HfConfig& config, const offload::Layout& layout, const ComputeOptions& options) {
  switch (config.family) {
    case Family::gpt2: return make_gpt2(config, layout, options);
    case Family::llama:
    case Family::mistral: break;
  }
  return make_llama(config, layout, options);
}

}  // namespace sluice::engine
