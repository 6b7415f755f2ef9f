// A small valid config, and what a failing one says.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "configs/read_config.h"

namespace sluice::configs {

inline const std::string kSample = R"({
  "model": {"path": "models/tiny"},
  "data": {"train": "train.tokens", "eval": "eval.tokens", "sequence_length": 64},
  "steps": 10,
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 3,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "nvme"}}
})";

inline RunConfig sample(std::vector<std::string> set = {}, Purpose purpose = Purpose::training) {
  return parse_config(kSample, "dir/sample.json", {.set = std::move(set), .purpose = purpose});
}

// The message of the Error that `call` throws; its kind must be config (exit code 2).
template <class Call>
std::string config_error(Call&& call) {
  try {
    call();
  } catch (const base::Error& error) {
    EXPECT_EQ(error.exit_code(), 2) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace sluice::configs
