#include "engine/model.h"

#include "base/error.h"

namespace sluice::engine {

offload::ModelDesc describe_model(const HfConfig& config) {
  return config.family == Family::gpt2 ? describe_gpt2(config) : describe_llama(config);
}

std::unique_ptr<Model> make_model(const HfConfig& config, const offload::Layout& layout, const ComputeOptions& options) {
  if (!name_of(config.family).trained)
    base::fail(base::ErrorKind::config, "{} can be planned, but not trained: its layers are not built", config.architecture);
  if (config.family == Family::gpt2) return make_gpt2(config, layout, options);
  return make_llama(config, layout, options);
}

}  // namespace sluice::engine
