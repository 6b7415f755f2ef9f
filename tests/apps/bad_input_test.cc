// Starts that must be refused: each ends with its exit code and one message, and nothing is made.
#include <functional>

#include "tests/apps/run_fixture.h"
#include "tests/engine/token_file_util.h"

namespace sluice::apps {
namespace {

namespace fs = std::filesystem;

struct Case {
  const char* name;
  std::function<void(const fs::path& folder)> prepare;  // alters FOLDER/model or adds a file
  Words set;
  int code;
  Words fragments;
};

class BadInputTest : public RunFixture {
 protected:
  void refuse_all(const std::vector<Case>& cases) {
    for (const Case& c : cases) {
      SCOPED_TRACE(c.name);
      fresh_model();
      if (c.prepare) c.prepare(folder_);
      expect_refused(train(c.set), c.code, c.fragments);
    }
  }
};

constexpr const char* kPointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 1314128\n";

// Adds a key to model/config.json.
auto with_key(const std::string& key) {
  return [key](const fs::path& folder) { edit(folder / "model" / "config.json", "{", "{" + key + ","); };
}
auto with_edit(const std::string& from, const std::string& to) {
  return [=](const fs::path& folder) { edit(folder / "model" / "config.json", from, to); };
}
auto with_file(const std::string& name, const std::string& text) {
  return [=](const fs::path& folder) { write_all(folder / name, text); };
}
auto without_file(const std::string& name) {
  return [=](const fs::path& folder) { fs::remove(folder / name); };
}
auto cut_to(const std::string& name, uint64_t bytes) {
  return [=](const fs::path& folder) { fs::resize_file(folder / name, bytes); };
}
auto with_bytes(const std::string& name, uint64_t offset, const std::string& bytes) {
  return [=](const fs::path& folder) { overwrite(folder / name, offset, bytes); };
}

TEST_F(BadInputTest, Models) {
  const std::string weights = "model/model.safetensors";
  refuse_all({
      {"no folder", nullptr, {"model.path=nope"}, 4, {"model error", "nope", "does not exist"}},
      {"a file", nullptr, {"model.path=config.json"}, 4, {"model error", "config.json"}},
      {"no config.json", without_file("model/config.json"), {}, 4, {"has no config.json"}},
      {"no weights", without_file(weights), {}, 4, {"neither model.safetensors nor model.safetensors.index.json"}},
      {"config.json cut", cut_to("model/config.json", 200), {}, 4, {"model/config.json is not valid JSON"}},
      {"header cut", cut_to(weights, 1000), {}, 4, {weights, "cut short", "Download it again"}},
      {"data cut", cut_to(weights, 1000000), {}, 4, {weights, "cut short", "1.25 MiB", "Download it again"}},
      {"empty", cut_to(weights, 0), {}, 4, {weights}},
      {"header length", with_bytes(weights, 0, "\xff\xff\xff\xff\xff"), {}, 4, {weights, "is not a safetensors file"}},
      {"header text", with_bytes(weights, 9, "{{{{"), {}, 4, {weights, "not valid JSON"}},
      {"LFS pointer for weights", with_file(weights, kPointer), {}, 4, {weights, "git-lfs pointer", "git lfs pull"}},
      {"LFS pointer for config", with_file("model/config.json", kPointer), {}, 4, {"git-lfs pointer", "git lfs pull"}},
      {"LFS pointer for tokenizer", with_file("model/tokenizer.json", kPointer), {}, 4, {"git-lfs pointer"}},
      {"family", with_edit("LlamaForCausalLM", "Phi3ForCausalLM"), {}, 4,
       {"Phi3ForCausalLM is not supported", "supported are LlamaForCausalLM"}},
      {"quantised", with_key(R"("quantization_config": {"quant_method": "gptq", "bits": 4})"), {}, 4,
       {"quantised source", "bf16, fp16 or fp32"}},
      {"window", with_key(R"("sliding_window": 64)"), {}, 4, {"sliding_window is 64"}},
      {"unknown key", with_key(R"("logit_softcap": 3)"), {}, 4, {"logit_softcap"}},
      {"missing tensors", with_edit("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"), {}, 4,
       {"lacks 9 tensor(s)", "model.layers.2.mlp.up_proj.weight"}},
      {"unknown tensors", with_edit("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1"), {}, 4, {"has 9 tensor(s)", "model.layers.1."}},
      {"shapes", with_edit("\"hidden_size\": 128", "\"hidden_size\": 256"), {}, 4, {"is [2048, 128], needs [2048, 256]"}},
      {"missing shard",
       [](const fs::path& folder) {
         fs::remove(folder / "model" / "model.safetensors");
         write_all(folder / "model" / "model.safetensors.index.json", R"({"weight_map": {"model.norm.weight": "shard.safetensors"}})");
       },
       {}, 4, {"model/shard.safetensors", "No such file"}},
  });
}

// A token file for the model's tokenizer, of which one id lies beyond the model's vocabulary.
void write_large_ids(const fs::path& folder) {
  const std::string tokenizer = read_all(folder / "model" / "tokenizer.json");
  engine::TokenBytes file;
  file.vocab = 4096;
  file.tokenizer = base::xxh3(tokenizer.data(), tokenizer.size());
  file.ids = {1, 3000};
  write_all(folder / "t.tokens", file.build());
}

void copy_tokens(const fs::path& folder) {
  fs::copy_file(test_models() / "train.tokens", folder / "t.tokens", fs::copy_options::overwrite_existing);
}

TEST_F(BadInputTest, TokenFiles) {
  const Words set{"data.train=t.tokens"};
  refuse_all({
      {"none", nullptr, {"data.train=nope.tokens"}, 3, {"nope.tokens", "No such file", "sluice prepare"}},
      {"a folder", nullptr, {"data.train=model"}, 3, {"model is not a regular file"}},
      {"something else", nullptr, {"data.train=config.json"}, 3, {"config.json is not a token file", "sluice prepare"}},
      {"another tokenizer", [](const fs::path& folder) { edit(folder / "model" / "tokenizer.json", "\"version\"", "\"Version\""); }, {}, 3,
       {"was made with another tokenizer", "sluice prepare --tokenizer model"}},
      {"ids beyond the vocabulary", write_large_ids, set, 3, {"t.tokens holds the token id 3000", "model has 2048"}},
      {"cut", [](const fs::path& folder) { copy_tokens(folder), fs::resize_file(folder / "t.tokens", 100000); }, set, 3,
       {"t.tokens has 100000 bytes, its header calls for 268162", "sluice prepare"}},
      {"a changed byte", [](const fs::path& folder) { copy_tokens(folder), overwrite(folder / "t.tokens", 100000, "\x01\x02\x01"); }, set, 3,
       {"t.tokens is damaged", "sluice prepare"}},
      {"evaluation set too", nullptr, {"data.eval=nope.tokens"}, 3, {"nope.tokens"}},
      {"shorter than a row", nullptr, {"data.sequence_length=1000000"}, 3, {"133565 tokens, fewer than one row"}},
  });
}

TEST_F(BadInputTest, ConfigsAndBudgets) {
  refuse_all({
      {"no learning rate", nullptr, {"optimizer.params.lr=null"}, 2, {"optimizer.params.lr is missing", "no default learning rate"}},
      {"unknown key", nullptr, {"optimizer.params.leaning=1"}, 2, {"optimizer.params.leaning"}},
      {"nothing to train", nullptr, {"model.trainable=[\"nothing*\"]"}, 2, {"\"nothing*\" matches no tensor"}},
      {"device: arenas do not fit", nullptr, {"memory.gpu=1MiB"}, 6, {"not enough device memory", "memory.gpu is 1.00 MiB"}},
      {"device: temporaries do not fit", nullptr, {"memory.gpu=4400000"}, 6, {"not enough device memory", "memory.gpu"}},
      {"host", nullptr, {"memory.host=1MiB"}, 5, {"not enough host memory", "memory.host"}},
      {"run.dir under a file", nullptr, {"run.dir=config.json/run"}, 7, {"cannot make run.dir config.json/run", "Not a directory"}},
      {"run.dir is a file", nullptr, {"run.dir=config.json"}, 7, {"run.dir config.json", "Not a directory"}},
      {"run.dir is a model's", nullptr, {"run.dir=model"}, 2, {"model", "not that of a run", "choose another run.dir"}},
      {"no such storage path", nullptr, {"run.dir=new/run", "storage.paths=[\"nope\"]"}, 2, {"storage.paths: nope is no folder"}},
  });
  expect_refused(train({}, {"--trace", "nope/trace.json"}), 2, {"--trace nope/trace.json"});
  expect_refused(train({}, {"--resume", "nope"}), 2, {"there is no run in it"});
}

TEST_F(BadInputTest, FullDisks) {
  const SmallDisk disk(at("disk"), "4m");
  if (!disk.valid()) GTEST_SKIP() << "cannot mount a small disk here";
  const Words full{"not enough disk space for the store", "needs 20.2 MiB", "MiB is free", "storage.paths", "storage.durable to \"none\""};
  expect_refused(train({"run.dir=disk/deep/run"}), 7, full);
  expect_refused(train({"storage.paths=[\"disk\"]"}), 7, {"not enough disk space", "MiB is free"});
  fresh_run();
  expect_refused({"export", "run", "disk/out"}, 7, {"no room to export to disk/out: need 17.4 MiB, have"});
  write_all(at("disk/filler"), std::string(4 << 20, 'x'));
  expect_refused(train({"run.dir=disk/run"}), 7, {"disk/run"});
  expect_refused({"eval", "config.json", "--set", "run.dir=disk/run"}, 7, {"evaluation needs", "is free", "run.dir"});
}

TEST_F(BadInputTest, WithoutDirectIoALineSaysSoAndStrictRefuses) {
  const SmallDisk disk(at("disk"), "64m");
  if (!disk.valid()) GTEST_SKIP() << "cannot mount a small disk here";
  environment_["SLUICE_IO"] = "threads";  // asked for, so no fallback of its own
  expect_refused(train({"run.dir=disk/run"}, {"--strict"}), 7, {"no direct I/O (O_DIRECT)", "--strict"});
  EXPECT_THAT(succeed(train({"run.dir=disk/run"})), testing::HasSubstr("no direct I/O (O_DIRECT)"));
  EXPECT_THAT(read_all(at("disk/run/log.txt")), testing::HasSubstr("no direct I/O (O_DIRECT)"));
  expect_refused({"inspect", "disk/run", "--strict"}, 7, {"no direct I/O (O_DIRECT)"});
}

}  // namespace
}  // namespace sluice::apps
