#include "engine/evaluator.h"

#include "engine/step_data.h"
#include "engine/step_handlers.h"

namespace sluice::engine {
namespace {

// Every sample of the data, once, in order.
class EvalSource : public StepSource {
 public:
  EvalSource(const Packing& data, const StepOptions& shape, const std::function<void(uint64_t, uint64_t)>& progress)
      : data_(data), shape_(shape), progress_(progress), samples_(data.samples_per_epoch(0)) {}

  bool begin(uint64_t period, Step& step) override {
    const uint64_t per_period = uint64_t{shape_.micro_batches} * shape_.micro_batch;
    if (period * per_period >= samples_) return false;
    for (uint32_t j = 0; j < shape_.micro_batches; ++j) {
      step.micro.push_back(assemble(data_, period * per_period + uint64_t{j} * shape_.micro_batch, shape_.micro_batch,
                                    shape_.sequence, samples_));
      step.trained += step.micro.back().trained;
    }
    return true;
  }

  void end(const Step& step) override {
    for (const double loss : step.losses) loss_sum_ += loss;
    trained_ += step.trained;
    done_ += uint64_t{shape_.micro_batches} * shape_.micro_batch;
    if (progress_) progress_(std::min(done_, samples_), samples_);
  }

  EvalResult result() const { return {trained_ == 0 ? 0 : loss_sum_ / static_cast<double>(trained_), trained_}; }

 private:
  const Packing& data_;
  const StepOptions& shape_;
  const std::function<void(uint64_t, uint64_t)>& progress_;
  const uint64_t samples_;
  double loss_sum_ = 0;
  uint64_t trained_ = 0, done_ = 0;
};

}  // namespace

Evaluator::Evaluator(Runtime& runtime, Model& model, const StepShape& shape, StepBuffers& buffers, offload::Store& store,
                     const offload::Plan& plan)
    : runtime_(runtime),
      shape_(shape),
      store_(store),
      plan_(plan),
      compute_(model, shape, buffers, {.keep_graphs = 0, .training = false, .lowest_trainable = 0}),
      transfer_(shape, buffers, store, *runtime.queue) {}

EvalResult Evaluator::run(const Packing& data, int slot, const std::function<void(uint64_t, uint64_t)>& progress) {
  EvalSource source(data, shape_.options(), progress);
  StepHandlers handlers(shape_, compute_, transfer_, nullptr, store_, source, {});
  handlers.set_newest({.read = slot, .write = slot});
  offload::Executor executor(plan_, handlers,
                             {.compute = runtime_.compute.get(), .h2d = runtime_.h2d.get(), .d2h = runtime_.d2h.get(), .trace = nullptr});
  executor.run(0);
  return source.result();
}

}  // namespace sluice::engine
