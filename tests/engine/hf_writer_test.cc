#include "engine/hf_writer.h"

#include <sys/resource.h>

#include <cmath>
#include <csignal>

#include "base/bf16.h"
#include "engine/config_text.h"
#include "tests/engine/files_util.h"

namespace sluice::engine {
namespace {

namespace fs = std::filesystem;
using base::ErrorKind;
using Json = nlohmann::ordered_json;

std::vector<ExpectedTensor> all_tensors(const HfReader& reader) {
  std::vector<ExpectedTensor> all;
  for (const WeightFile& f : reader.files())
    for (const TensorEntry& t : f.header.tensors) all.push_back({t.name, t.shape});
  return all;
}

// The weights as they were.
ProduceWeights unchanged(const HfReader& reader) {
  return [&reader](const std::string& name, uint64_t first, std::span<float> out) {
    reader.read(name, first, out.size(), out.data());
  };
}

class HfWriterTest : public testing::Test {
 protected:
  void export_to(const std::string& name, const HfReader& reader, ExportOptions options = {}) {
    options.out = dir_ / name;
    HfWriter(reader, all_tensors(reader), options).write(unchanged(reader));
  }
  TempDir dir_;
};

TEST_F(HfWriterTest, UnchangedWeightsGiveEqualFiles) {
  for (const char* model : {"tied", "untied", "tied_fp32", "llama3", "gpt2", "gpt2_hub"}) {
    SCOPED_TRACE(model);
    const fs::path source = test_models() / model / "model";
    uint64_t last = 0, total = 0;
    export_to(model, HfReader(source),
              {.out = {}, .dtype = "", .piece = 1000, .progress = [&](uint64_t done, uint64_t all) {
                 EXPECT_GT(done, last);
                 last = done;
                 total = all;
               }});
    EXPECT_EQ(last, total);
    size_t files = 0;
    for (const auto& entry : fs::directory_iterator(source)) {
      ++files;
      if (entry.path().filename() == "config.json") continue;
      EXPECT_TRUE(read_file(entry.path()) == read_file(dir_ / model / entry.path().filename()))
          << entry.path();
    }
    EXPECT_EQ(
        static_cast<size_t>(std::distance(fs::directory_iterator(dir_ / model), fs::directory_iterator())),
        files);
    EXPECT_FALSE(fs::exists(dir_ / (std::string(model) + ".tmp")));
  }
}

TEST_F(HfWriterTest, ConfigGainsTheOtherGenerationsKeysAndKeepsItsText) {
  for (const char* model : {"tied", "untied", "llama3", "biased"}) {
    SCOPED_TRACE(model);
    const std::string before = read_file(test_models() / model / "model" / "config.json"),
                      after = with_twin_keys(before);
    const size_t kept = before.find_last_not_of(" \n}") + 1;
    EXPECT_EQ(after.substr(0, kept), before.substr(0, kept));
    const HfConfig a = parse_hf_config(Json::parse(before), "a"),
                   b = parse_hf_config(Json::parse(after), "b");
    EXPECT_EQ(a.rope_theta, b.rope_theta);
    EXPECT_EQ(a.rope_scaling, b.rope_scaling);
    for (const char* key : {"torch_dtype", "dtype", "rope_theta", "rope_scaling", "rope_parameters"})
      EXPECT_TRUE(b.raw.contains(key)) << key;
    EXPECT_EQ(with_twin_keys(after), after);
  }
  EXPECT_EQ(
      with_twin_keys(R"({"dtype":"float32","rope_parameters":{"rope_theta":1.5,"rope_type":"default"}})"),
      R"({"dtype":"float32","rope_parameters":{"rope_theta":1.5,"rope_type":"default"},"torch_dtype": "float32","rope_theta": 1.5,)"
      R"("rope_scaling": null})");
}

TEST(ConfigText, AModelWithoutRotaryGainsNoRotaryKeys) {
  EXPECT_EQ(with_twin_keys(R"({"n_embd":8,"dtype":"float32"})"), R"({"n_embd":8,"dtype":"float32","torch_dtype": "float32"})");
  for (const char* model : {"gpt2", "gpt2_hub"}) {
    const Json after = Json::parse(with_twin_keys(read_file(test_models() / model / "model" / "config.json")));
    EXPECT_EQ(parse_hf_config(after, model).hidden, 128);
  }
}

TEST(ConfigText, ReplacesTheTypeAndNothingElse) {
  EXPECT_EQ(with_dtype("{\n \"a\": 1e-05, \"torch_dtype\" : \"float32\"}\n", "bfloat16"),
            "{\n \"a\": 1e-05, \"torch_dtype\" : \"bfloat16\"}\n");
  EXPECT_EQ(with_dtype(R"({"n":{"dtype":1},"dtype":"float32"})", "bfloat16"),
            "{\n  \"n\": {\n    \"dtype\": 1\n  },\n  \"dtype\": \"bfloat16\"\n}\n");
  EXPECT_EQ(with_dtype(R"({"a": 1})", "bfloat16"), R"({"a": 1})");
}

TEST_F(HfWriterTest, ChangesTheTypeWhenAsked) {
  const HfReader source(test_models() / "llama3" / "model");  // F32, two files
  export_to("out", source, {.out = {}, .dtype = "BF16"});
  const HfReader result(dir_ / "out");
  EXPECT_EQ(result.config().dtype, "bfloat16");
  EXPECT_EQ(result.files().size(), source.files().size());
  std::vector<float> a(64 * 64), b(a.size());
  const std::string name = "model.layers.1.self_attn.q_proj.weight";
  EXPECT_EQ(result.tensor(name).dtype, "BF16");
  source.read(name, 0, a.size(), a.data());
  result.read(name, 0, b.size(), b.data());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(b[i], base::bf16_to_float(base::split(a[i]).hi));
  const auto index = Json::parse(read_file(dir_ / "out" / "model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 2 * 368960);

  export_to("half", source, {.out = {}, .dtype = "F16"});
  HfReader(dir_ / "half").read(name, 0, b.size(), b.data());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(b[i], a[i], 1e-3 * std::abs(a[i]) + 1e-7);
}

TEST_F(HfWriterTest, CopiesEverythingButOtherWeights) {
  const fs::path source = dir_ / "source";
  fs::copy(test_models() / "tied" / "model", source, fs::copy_options::recursive);
  write_file(source / "sub" / "notes.txt", std::string("a\0b", 3));
  write_file(source / "pytorch_model.bin", "old weights");
  write_file(source / "sub" / "model.onnx", "old weights");
  write_file(source / ".git" / "HEAD", "x");
  write_file(dir_ / "blob", "linked");
  fs::create_symlink("../blob", source / "vocab.json");
  export_to("out", HfReader(source));
  EXPECT_EQ(read_file(dir_ / "out" / "sub" / "notes.txt"), std::string("a\0b", 3));
  EXPECT_EQ(read_file(dir_ / "out" / "vocab.json"), "linked");
  EXPECT_FALSE(fs::is_symlink(dir_ / "out" / "vocab.json"));
  for (const char* name : {"pytorch_model.bin", "sub/model.onnx", ".git"})
    EXPECT_FALSE(fs::exists(dir_ / "out" / name)) << name;
}

TEST_F(HfWriterTest, CopiesTensorsThatAreNoParameters) {
  const HfReader source(test_models() / "tied" / "model");
  HfWriter writer(source, {{"model.norm.weight", {128}}}, {.out = dir_ / "out"});
  writer.write([](const std::string& name, uint64_t, std::span<float> out) {
    EXPECT_EQ(name, "model.norm.weight");
    std::fill(out.begin(), out.end(), 2.0f);
  });
  const HfReader result(dir_ / "out");
  std::vector<float> a(2048 * 128), b(a.size());
  source.read("model.embed_tokens.weight", 0, a.size(), a.data());
  result.read("model.embed_tokens.weight", 0, b.size(), b.data());
  EXPECT_EQ(a, b);
  result.read("model.norm.weight", 0, 128, b.data());
  EXPECT_EQ(b[127], 2.0f);
}

TEST_F(HfWriterTest, RefusesAnOutputThatIsInUse) {
  const fs::path source = dir_ / "source";
  fs::copy(test_models() / "tied" / "model", source, fs::copy_options::recursive);
  const HfReader reader(source);
  write_file(dir_ / "full" / "x", "x");
  write_file(dir_ / "file", "x");
  for (const char* out : {"full", "file"})
    expect_error(ErrorKind::config, "not an empty directory", [&] { export_to(out, reader); });
  expect_error(ErrorKind::config, "inside the source", [&] { export_to("source/out", reader); });
  write_file(dir_ / "b.tmp" / "x", "x");
  expect_error(ErrorKind::config, "was not made by an export", [&] { export_to("b", reader); });
  EXPECT_TRUE(fs::exists(dir_ / "b.tmp" / "x"));

  fs::create_directory(dir_ / "empty");
  export_to("empty", reader);
  EXPECT_TRUE(fs::exists(dir_ / "empty" / "model.safetensors"));
  // What a killed export left behind is replaced.
  write_file(dir_ / "c.tmp" / ".sluice-export", "");
  write_file(dir_ / "c.tmp" / "model.safetensors", "half");
  export_to("c/", reader);
  EXPECT_TRUE(fs::exists(dir_ / "c" / "config.json"));
}

TEST_F(HfWriterTest, LeavesNothingAfterAnError) {
  const HfReader reader(test_models() / "tied" / "model");
  HfWriter writer(reader, all_tensors(reader), {.out = dir_ / "out"});
  int calls = 0;
  EXPECT_THROW(writer.write([&](const std::string&, uint64_t, std::span<float> out) {
    std::fill(out.begin(), out.end(), 0.0f);
    if (++calls == 3) throw base::Error(ErrorKind::disk, "the store is gone");
  }),
               base::Error);
  EXPECT_EQ(fs::directory_iterator(dir_.path()), fs::directory_iterator());
}

// A disk that fills up while writing, played by a limit on file sizes.
TEST_F(HfWriterTest, AFailedWriteIsADiskErrorAndLeavesNothing) {
  const HfReader reader(test_models() / "tied" / "model");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{200'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error(ErrorKind::disk, "cannot write", [&] { export_to("out", reader); });
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_EQ(fs::directory_iterator(dir_.path()), fs::directory_iterator());
}

}  // namespace
}  // namespace sluice::engine
