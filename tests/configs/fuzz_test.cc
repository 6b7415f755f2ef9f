// Whatever the bytes are, reading a config ends in a config or in an Error of kind config.
#include <gtest/gtest.h>

#include <random>

#include "configs/explain.h"
#include "tests/configs/sample.h"

namespace sluice::configs {
namespace {

const std::string kSeeds[] = {
    kSample,
    R"({"deepspeed": {"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": "1e-4", "betas": [0.9, 0.99]}},
        "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 2, "total_num_steps": 1e2}}, "fp16": {"enabled": "auto"},
        "zero_optimization": {"stage": 3, "cpu_offload": true, "reduce_bucket_size": 5e8}, "aio": {"block_size": 1048576}},
        "model": {"path": "m"}, "data": {"train": "t"}, "epochs": 1.5, "memory": {"gpu": "8GiB", "host": "auto"}})",
    R"({"model": {"path": "m", "trainable": ["*.mlp.*"]}, "data": {"train": "t"}, "steps": 4, "train_batch_size": 2,
        "optimizer": {"params": {"lr": 1e-5}}, "execution": {"keep_graphs": "all", "pools": {"state": 4}}, "storage": {"paths": ["/x"]}})",
};

// Bytes flipped, removed, repeated, and tokens that often break readers put in between.
std::string mutate(std::string text, std::mt19937_64& random) {
  static const std::string kTokens[] = {"null",
                                        "-1",
                                        "1e308",
                                        "1e-400",
                                        "\"\"",
                                        "{}",
                                        "[]",
                                        "[[",
                                        "}}",
                                        "\"auto\"",
                                        ",",
                                        ":",
                                        "18446744073709551616",
                                        "-9223372036854775808",
                                        "\\u0000",
                                        "\xc3\x28",
                                        "\"\\ud800\"",
                                        "true",
                                        "0.1",
                                        "//",
                                        "/*",
                                        "#",
                                        "\""};
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (size_t i = 1 + below(4); i > 0 && !text.empty(); --i) {
    const size_t at = below(text.size());
    const size_t length = std::min(1 + below(12), text.size() - at);
    switch (below(5)) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(at, length));
        break;
      case 3:
        text.insert(at, kTokens[below(std::size(kTokens))]);
        break;
      case 4:
        text.replace(at, length, kTokens[below(std::size(kTokens))]);
        break;
    }
  }
  return text;
}

TEST(Fuzz, MutatedConfigsNeverCrash) {
  std::mt19937_64 random(20240611);
  int accepted = 0;
  for (int i = 0; i < 2400; ++i) {
    const std::string text = mutate(kSeeds[static_cast<size_t>(i) % std::size(kSeeds)], random);
    try {
      const RunConfig config = parse_config(text, "fuzz.json");
      EXPECT_EQ(resolved_json(parse_config(resolved_json(config).dump(), "stored.json")).dump(),
                resolved_json(config).dump())
          << text;
      ++accepted;
    } catch (const base::Error& error) {
      EXPECT_EQ(error.kind(), base::ErrorKind::config) << text;
    }
  }
  EXPECT_GT(accepted, 20);  // the mutations are not all hopeless
}

TEST(Fuzz, MutatedAssignmentsNeverCrash) {
  const std::string seeds[] = {"optimizer.params.lr=1e-4", "run={\"seed\": 3}", "memory.gpu=8GiB",
                               "deepspeed={\"aio\": {\"queue_depth\": 4}}", "model.trainable=[\"a\", \"b\"]"};
  std::mt19937_64 random(7);
  for (int i = 0; i < 1500; ++i) {
    const std::string assignment = mutate(seeds[static_cast<size_t>(i) % std::size(seeds)], random);
    try {
      sample({assignment});
    } catch (const base::Error& error) {
      EXPECT_EQ(error.kind(), base::ErrorKind::config) << assignment;
    }
  }
}

}  // namespace
}  // namespace sluice::configs
