// Runs that must not be opened, or only with a word: each refusal has its exit code and one message, and the run stays as it is.
#include <signal.h>

#include <chrono>
#include <functional>
#include <thread>

#include "tests/apps/run_fixture.h"

namespace sluice::apps {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

using BadStoreTest = RunFixture;

TEST_F(BadStoreTest, FoldersThatAreNoRun) {
  fs::create_directory(at("empty"));
  for (const char* command : {"eval", "inspect"}) {
    SCOPED_TRACE(command);
    expect_refused({command, "model"}, 2, {"model is no run: it has no store"});
    expect_refused({command, "empty"}, 2, {"empty is no run"});
    expect_refused({command, "nope"}, 2, {"nope"});
  }
  expect_refused({"export", "model", "out"}, 2, {"model is no run"});
  expect_refused({"inspect", "config.json"}, 2, {"config.json is no run"});
}

TEST_F(BadStoreTest, ResumeWithOtherSettings) {
  fresh_run();
  const std::string other = "model.path=" + (test_models() / "untied" / "model").string();
  expect_refused(train(), 2, {"there is already a run in run", "--resume auto"});
  expect_refused(resume({"data.sequence_length=32", "model.loss_chunk=32"}), 2,
                 {"data.sequence_length: the run has 64, the config 32", "model.loss_chunk: the run has 64, the config 32", "--allow-change"});
  expect_refused(resume({other}), 7, {"the store holds another model", "run.dir"});
  expect_refused(resume({"model.trainable=[\"*mlp*\"]"}), 2, {"trainable"});
  expect_refused(resume({"memory.host=1MiB"}), 5, {"memory.host"});
}

// Same shapes and names, other weights.
TEST_F(BadStoreTest, ResumeWithARetrainedModel) {
  fresh_run();
  overwrite(at("model/model.safetensors"), fs::file_size(at("model/model.safetensors")) - 64, std::string(64, '\1'));
  expect_refused(resume({"steps=3"}), 7, {"another model"});
}

TEST_F(BadStoreTest, ResumeOfAMovedModelSaysSoAndOfMoreStepsGoesOn) {
  fresh_run();
  fs::rename(at("model"), at("elsewhere"));
  expect_refused(resume({"steps=3"}), 4, {"model", "does not exist"});
  expect_refused({"export", "run", "out"}, 4, {"the source model", "is gone", "model.path"});
  const std::string said = succeed(resume({"steps=3", "model.path=elsewhere"}));
  EXPECT_THAT(said, HasSubstr("model.path has moved from"));
  EXPECT_EQ(inspect("run")["step"], 3);
  EXPECT_THAT(succeed(resume({"steps=3", "model.path=elsewhere"})), Not(HasSubstr("has moved")));
  EXPECT_THAT(succeed(resume({"steps=1", "model.path=elsewhere"})), HasSubstr("is at step 3 and steps is 1: nothing to do"));
  EXPECT_EQ(inspect("run")["step"], 3);
}

// Paths are stored absolute.
TEST_F(BadStoreTest, ARunIsReadFromAnyFolder) {
  fresh_run();
  fs::create_directory(at("below"));
  const ProgramResult result = run_program({"inspect", "../run"}, at("below"));
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST_F(BadStoreTest, DamagedStores) {
  struct Case {
    const char* name;
    std::function<void(const fs::path& store)> damage;
    Words fragments;
  };
  const auto both = [](const fs::path& store, const std::function<void(const fs::path&)>& damage) {
    for (const char* slot : {"r000.d0.s0", "r000.d0.s1"}) damage(store / slot);
  };
  const Case cases[] = {
      {"both records", [](const fs::path& store) { for (uint64_t at : {0, 1 << 20}) overwrite(store / "SUPER", at + 100, "damage"); },
       {"SUPER", "neither of the two records is valid", "run.dir"}},
      {"no SUPER", [](const fs::path& store) { fs::remove(store / "SUPER"); }, {"SUPER"}},
      {"a slot file is gone", [](const fs::path& store) { fs::remove(store / "r000.d0.s1"); }, {"r000.d0.s1 is missing", "Restore"}},
      {"a slot file is cut", [](const fs::path& store) { fs::resize_file(store / "r000.d0.s0", 1 << 20); }, {"r000.d0.s0", "1048576 bytes"}},
      {"headers", [&](const fs::path& store) { both(store, [](const fs::path& file) { overwrite(file, 64, "damage"); }); }, {"r000.d0.s"}},
      {"tables", [&](const fs::path& store) { both(store, [](const fs::path& file) { overwrite(file, 4096 + 8, "damage"); }); }, {"r000.d0.s"}},
      {"layout.json", [](const fs::path& store) { write_all(store / "layout.json", "{"); }, {"layout.json is damaged"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    fresh_run();
    c.damage(at("run/store"));
    expect_refused({"inspect", "run"}, 7, c.fragments);
    expect_refused(resume({"steps=3"}), 7, c.fragments);
  }
}

TEST_F(BadStoreTest, DamagedBytesAreFoundByVerify) {
  fresh_run();
  for (const char* slot : {"r000.d0.s0", "r000.d0.s1"}) overwrite(at("run/store") / slot, 3000000, "damage");
  expect_refused({"inspect", "run", "--verify"}, 7, {"the weights extent", "model.layers.0.mlp", "do not match", "restore"});
  expect_refused(resume({"steps=3", "storage.verify=true"}), 7, {"the weights extent", "model.layers.0.mlp"});
}

TEST_F(BadStoreTest, ExportNeedsANewFolder) {
  fresh_run();
  expect_refused({"export", "run", "model"}, 2, {"model", "not an empty directory", "choose another"});
  expect_refused({"export", "run", "config.json"}, 2, {"config.json"});
  expect_refused({"export", "run", "config.json/out"}, 7, {"config.json/out"});
}

TEST_F(BadStoreTest, EvaluationOnTheWrongThings) {
  fresh_run();
  const Words eval{"eval", "config.json", "--set"};
  const auto with = [&](const std::string& set) {
    Words words = eval;
    words.push_back(set);
    return words;
  };
  expect_refused({"eval", "run", "--data", "nope"}, 3, {"nope"});
  expect_refused({"eval", "run", "--set", "steps=3"}, 2, {"whose settings are fixed"});
  expect_refused(with("data.eval=null"), 2, {"data.eval", "--data"});
  expect_refused(with("memory.gpu=600KiB"), 6, {"evaluation needs", "memory.gpu is 600 KiB"});
  expect_refused(with("memory.host=1MiB"), 5, {"evaluation needs", "memory.host is 1.00 MiB"});
  expect_refused(with("model.path=nope"), 4, {"nope"});
}

TEST_F(BadStoreTest, ARunOfAGpuIsEvaluatedWithoutOneWithAWord) {
  if (fs::exists("/proc/driver/nvidia/version")) GTEST_SKIP() << "this machine may have a GPU";
  fresh_run();
  auto config = nlohmann::json::parse(read_all(at("run") / "config.json"));
  config["machine"]["device"] = "cuda";
  write_all(at("run") / "config.json", config.dump(2));
  EXPECT_THAT(succeed({"eval", "run"}), HasSubstr("the run trained on CUDA, which cannot be used here"));
  expect_refused({"eval", "run", "--strict"}, 2, {"the run trained on CUDA"});
  expect_refused(train({"machine.device=cuda", "run.dir=new"}), 2, {"machine.device is \"cuda\"", "\"cpu\""});
}

TEST_F(BadStoreTest, ADirtySingleSlotIsRefused) {
  {
    Program program(train({"storage.durable=none", "steps=100000"}), folder_);
    while (program.running() && steps_written("run") < 1) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_TRUE(program.running()) << program.finish().err;
    program.signal(SIGKILL);
    program.finish();
  }
  const Words fragments{"durable: none", "mixture", "another run.dir"};
  expect_refused(resume({"storage.durable=none"}), 7, fragments);
  expect_refused({"inspect", "run"}, 7, fragments);
  expect_refused({"export", "run", "out"}, 7, fragments);
}

}  // namespace
}  // namespace sluice::apps
