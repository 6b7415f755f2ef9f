// Dropout whose masks are a function of (run seed, step, micro-batch, block, place): a forward that is run again, on any
// thread and in any order, gets the same masks.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "gpu/cpu_kernels.h"

namespace sluice::engine {

// What the masks of one micro-batch depend on.
struct RandomKey {
  uint64_t seed = 0, step = 0;  // of the run
  uint64_t micro = 0;           // micro-batch of the global step, over all ranks
};

// Where in a block something is dropped.
enum class DropoutPlace : uint64_t { embedding, attention, attention_output, mlp_output };

// Inactive without a key (evaluation) and for a probability of 0. Probabilities are in units of 2^-32.
gpu::cpu::Dropout make_dropout(double probability, const std::optional<RandomKey>& key, uint32_t block, DropoutPlace place);

// x + dropout(update), shapes [..., cols]; the dropped update is rounded to the compute type before it is added.
at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& update, const gpu::cpu::Dropout& dropout);

// dropout(x), without autograd. It is its own gradient: dropped(grad_output) is the gradient of x.
at::Tensor dropped(const at::Tensor& x, const gpu::cpu::Dropout& dropout);

}  // namespace sluice::engine
