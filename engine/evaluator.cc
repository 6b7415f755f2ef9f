#include "engine/evaluator.h"

#include "engine/step_data.h"
#include "engine/step_handlers.h"
#include "offload/ranks.h"

namespace sluice::engine {
namespace {

// Every sample of the data, once, in order; of several ranks this one's micro-batches of each period, global ones in rank order.
class EvalSource : public StepSource {
 public:
  EvalSource(const Packing& data, const StepOptions& shape, uint32_t world, const std::function<void(uint64_t, uint64_t)>& progress)
      : data_(data),
        shape_(shape),
        progress_(progress),
        samples_(data.samples_per_epoch(0)),
        own_(uint64_t{shape.micro_batches} * shape.micro_batch),
        per_period_(own_ * world) {}

  bool begin(uint64_t period, Step& step) override {
    if (period * per_period_ >= samples_) return false;
    const uint64_t first = period * per_period_ + shape_.rank * own_;
    for (uint32_t j = 0; j < shape_.micro_batches; ++j) {
      step.micro.push_back(assemble(data_, first + uint64_t{j} * shape_.micro_batch, shape_.micro_batch, shape_.sequence, samples_));
      step.trained += step.micro.back().trained;
    }
    return true;
  }

  void end(const Step& step) override {
    for (const double loss : step.losses) loss_sum_ += loss;
    trained_ += step.trained;
    done_ += per_period_;
    if (progress_) progress_(std::min(done_, samples_), samples_);
  }

  EvalResult result(comm::Comm* comm) const {
    double sum = loss_sum_;
    uint64_t trained = trained_;
    if (comm != nullptr) {
      const double mine[] = {sum, static_cast<double>(trained)};  // exact below 2^53 tokens
      sum = 0, trained = 0;
      // One rank's share of the samples, or its machine, may take much longer than another's: whoever dies meanwhile is noticed all the same.
      for (const auto& of : comm->control().gather(comm::Topic::evaluate, std::span<const double>(mine), offload::kAnyWait))
        sum += of.at(0), trained += static_cast<uint64_t>(of.at(1));
    }
    return {trained == 0 ? 0 : sum / static_cast<double>(trained), trained};
  }

 private:
  const Packing& data_;
  const StepOptions& shape_;
  const std::function<void(uint64_t, uint64_t)>& progress_;
  const uint64_t samples_, own_, per_period_;
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
      transfer_(shape, buffers, store, *runtime.queue) {
  if (runtime.comm) comm_.emplace(shape, buffers, *runtime.comm);
}

EvalResult Evaluator::run(const Packing& data, int slot, const std::function<void(uint64_t, uint64_t)>& progress) {
  EvalSource source(data, shape_.options(), runtime_.comm ? static_cast<uint32_t>(runtime_.comm->world()) : 1, progress);
  StepHandlers handlers(shape_, compute_, transfer_, nullptr, store_, source, {});
  if (comm_) handlers.connect(&*comm_, nullptr);
  handlers.set_newest({.read = slot, .write = slot});
  offload::Executor executor(plan_, handlers,
                             runtime_.streams(nullptr));
  executor.run(0);
  return source.result(runtime_.comm.get());
}

}  // namespace sluice::engine
