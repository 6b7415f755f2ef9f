// The rules of the loss scale against DeepSpeed's, written down once more as it counts: by iterations.
#include "engine/loss_scaler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace sluice::engine {
namespace {

// deepspeed/runtime/fp16/loss_scaler.py: a number for each iteration and for the last one that overflowed.
struct DeepspeedScaler {
  LossScalerOptions o;
  double scale = std::ldexp(1.0, static_cast<int>(o.initial_scale_power));
  int64_t iteration = 0, last_overflow = -1, left = static_cast<int64_t>(o.hysteresis);
  bool raised = false;

  void update(bool overflow) {
    if (overflow) {
      if (o.hysteresis == 1 || left == 1) {
        raised = scale == o.min_loss_scale;
        if (!raised) scale = std::max(scale / 2, o.min_loss_scale);
      } else {
        --left;
      }
      last_overflow = iteration;
    } else {
      raised = false;
      if (o.consecutive_hysteresis) left = static_cast<int64_t>(o.hysteresis);
      if ((iteration - last_overflow) % static_cast<int64_t>(o.loss_scale_window) == 0) {
        if (!o.consecutive_hysteresis) left = static_cast<int64_t>(o.hysteresis);
        scale *= 2;
      }
    }
    ++iteration;
  }
};

TEST(LossScaler, FollowsDeepspeedsRules) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    LossScalerOptions o{.enabled = true,
                        .initial_scale_power = random() % 20,
                        .loss_scale_window = 1 + random() % 12,
                        .hysteresis = 1 + random() % 4,
                        .consecutive_hysteresis = random() % 2 == 0,
                        .min_loss_scale = random() % 2 == 0 ? 1 : 0.25};
    const unsigned rarely = 2 + random() % 12;
    const LossScaler ours(o);
    DeepspeedScaler theirs{o};
    LossScale now = ours.initial();
    for (int step = 0; step < 300 && theirs.scale < 1e30; ++step) {
      ASSERT_EQ(now.scale, theirs.scale) << "round " << round << " step " << step;
      ASSERT_EQ(now.hysteresis, static_cast<uint64_t>(theirs.left));
      const bool overflow = random() % rarely == 0;
      const bool exhausted = overflow && ours.exhausted(now);
      theirs.update(overflow);
      ASSERT_EQ(exhausted, theirs.raised && overflow) << "round " << round << " step " << step;
      now = ours.after(now, overflow);
      // A run that is stopped and resumed here sees no difference.
      offload::StepMeta meta;
      write_scale(now, &meta);
      ASSERT_EQ(ours.resumed(meta), now);
    }
  }
}

TEST(LossScaler, AFixedScaleStays) {
  const LossScaler scaler({.enabled = true, .loss_scale = 128});
  LossScale now = scaler.initial();
  for (int step = 0; step < 3000; ++step) {
    EXPECT_EQ(now.scale, 128);
    EXPECT_FALSE(scaler.exhausted(now));
    now = scaler.after(now, step % 3 != 0);
  }
}

TEST(LossScaler, OtherOptionsGoOnFromWhereTheScaleWas) {
  const offload::StepMeta meta{.loss_scale = 4096, .good_steps = 17, .hysteresis = 5};
  const LossScaler dynamic({.enabled = true, .hysteresis = 3});
  EXPECT_EQ(dynamic.resumed(meta), (LossScale{4096, 17, 3}));
  EXPECT_EQ(LossScaler({.enabled = true, .loss_scale = 8}).resumed(meta), (LossScale{.scale = 8}));
  EXPECT_EQ(LossScaler({}).resumed(meta), LossScale{});
  EXPECT_EQ(LossScaler({}).initial().scale, 1);
}

}  // namespace
}  // namespace sluice::engine
