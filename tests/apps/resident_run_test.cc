// Blocks that stay on the device, as a user meets them: a number or "auto", and runs that go on with another one.
#include "tests/apps/run_fixture.h"

namespace sluice::apps {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class ResidentRun : public RunFixture {
 protected:
  void expect_same(const std::string& run, const std::string& other) const {
    for (const char* digest : {"step", "weights_xxh3", "state_xxh3"}) EXPECT_EQ(inspect(run).at(digest), inspect(other).at(digest)) << digest;
    EXPECT_EQ(eval_loss(run), eval_loss(other));
  }
  json eval_loss(const std::string& of) const {
    const ProgramResult r = run({"eval", of, "--json"});
    EXPECT_EQ(r.status, 0) << r.err;
    return r.status == 0 ? json::parse(r.out).at("loss") : json();
  }
};

// The config's tiers are nvme, where the default commits every step.
TEST_F(ResidentRun, ARunGoesOnWithAnyShareOfItsBlocks) {
  succeed(train({"run.dir=plain", "steps=5"}));
  const std::string all = succeed(train({"execution.resident_blocks=auto", "steps=1"}));
  EXPECT_THAT(all, HasSubstr("first 4 of 4 blocks on the device"));
  EXPECT_THAT(all, HasSubstr("durable: checkpoint"));
  EXPECT_THAT(succeed(resume({"execution.resident_blocks=2", "steps=2"})), HasSubstr("first 2 of 4 blocks on the device"));
  const std::string none = succeed(resume({"steps=3"}));
  EXPECT_THAT(none, Not(HasSubstr("blocks on the device")));
  EXPECT_THAT(none, HasSubstr("durable: step"));
  succeed(resume({"execution.resident_blocks=3", "checkpoint.every=1", "execution.overlap=spread", "steps=5"}));
  expect_same("run", "plain");
  succeed({"export", "run", "out"});
  succeed({"export", "plain", "plain_out"});
  EXPECT_TRUE(read_all(at("out/model.safetensors")) == read_all(at("plain_out/model.safetensors")));
}

TEST_F(ResidentRun, AutoTakesWhatTheDeviceHolds) {
  const auto need = [&](const std::string& blocks) {
    const ProgramResult r = run({"plan", "config.json", "--machine", "rtx4090-64g", "--json", "--set", "execution.resident_blocks=" + blocks});
    EXPECT_EQ(r.status, 0) << r.err;
    return json::parse(r.out).at("memory").at("gpu").at("need").get<uint64_t>();
  };
  ASSERT_LT(need("2") * 21 / 20, need("4"));
  const std::string told = succeed(train({"execution.resident_blocks=auto", "memory.gpu=" + std::to_string(need("2") * 21 / 20)}));
  EXPECT_THAT(told, testing::AnyOf(HasSubstr("first 2 of 4 blocks"), HasSubstr("first 3 of 4 blocks")));
}

// What tiers that are left open make of it is stored, and can be read again.
TEST_F(ResidentRun, TiersLeftOpenMayHoldAllBlocks) {
  const Words open{"zero_optimization={\"stage\":3}", "execution.resident_blocks=2"};
  succeed(train({open[0], open[1], "run.dir=plain", "steps=2"}));
  succeed(train({open[0], open[1], "steps=1"}));
  succeed(resume({open[0], open[1], "steps=2"}));
  expect_same("run", "plain");
}

TEST_F(ResidentRun, RanksKeepShardsOfBlocks) {
  const auto ranks = [](const Words& more) {
    Words set{"train_micro_batch_size_per_gpu=1", "train_batch_size=4"};
    set.insert(set.end(), more.begin(), more.end());
    return train(set, {"--nproc", "2"});
  };
  succeed(ranks({"run.dir=plain"}));
  EXPECT_THAT(succeed(ranks({"execution.resident_blocks=auto"})), HasSubstr("of 4 blocks on the device"));
  expect_same("run", "plain");
}

}  // namespace
}  // namespace sluice::apps
