#include "engine/hf_reader.h"

#include <unistd.h>

#include "base/bf16.h"
#include "tests/engine/files_util.h"

namespace sluice::engine {
namespace {

namespace fs = std::filesystem;
using base::ErrorKind;

const char* const kConfig =
    R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1,
  "num_attention_heads": 2, "vocab_size": 8, "rope_theta": 10000.0, "tie_word_embeddings": TIED})";

std::string config(bool tied) {
  std::string text = kConfig;
  return text.replace(text.find("TIED"), 4, tied ? "true" : "false");
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// A folder whose only tensors are the given ones: {name, dtype, shape as JSON, bytes}.
struct Raw {
  std::string name, dtype, shape, bytes;
};
std::string file_of(const std::vector<Raw>& tensors) {
  std::string json = "{", data;
  for (const Raw& t : tensors) {
    json += (json.size() > 1 ? "," : "") +
            ("\"" + t.name + R"(":{"dtype":")" + t.dtype + R"(","shape":)" + t.shape) +
            ",\"data_offsets\":[" + std::to_string(data.size()) + "," +
            std::to_string(data.size() + t.bytes.size()) + "]}";
    data += t.bytes;
  }
  return safetensors_bytes(json + "}", data);
}
void make_folder(const fs::path& dir, const std::vector<Raw>& tensors, bool tied = true) {
  write_file(dir / "config.json", config(tied));
  write_file(dir / "model.safetensors", file_of(tensors));
}

TEST(HfReader, ReadsRangesOfEveryType) {
  TempDir dir;
  std::vector<float> f32(40'000);
  std::vector<uint16_t> bf16(f32.size()), f16 = {0x3c00, 0xc000, 0x0001};
  for (size_t i = 0; i < f32.size(); ++i) {
    f32[i] = 0.1f * static_cast<float>(i);
    bf16[i] = static_cast<uint16_t>(i);
  }
  make_folder(dir.path(), {{"w", "F32", "[40000]", bytes_of(f32)},
                           {"b", "BF16", "[200,200]", bytes_of(bf16)},
                           {"h", "F16", "[3]", bytes_of(f16)}});
  const HfReader reader(dir.path());
  std::vector<float> out(f32.size());
  reader.read("w", 0, out.size(), out.data());
  EXPECT_EQ(out, f32);
  reader.read("w", 17'001, 20'000, out.data());
  EXPECT_EQ(out[19'999], f32[37'000]);
  std::vector<uint16_t> bits(bf16.size());
  reader.read_bf16("b", 0, bits.size(), bits.data());
  EXPECT_EQ(bits, bf16);
  reader.read_bf16("w", 5, 30'000, bits.data());
  for (size_t i : {0, 1, 4096, 29'999}) EXPECT_EQ(bits[i], base::split(f32[i + 5]).hi);
  reader.read("h", 1, 2, out.data());
  EXPECT_EQ(out[0], -2.0f);
  EXPECT_EQ(out[1], 0x1p-24f);
  EXPECT_THROW(reader.read("h", 2, 2, out.data()), base::Error);
  expect_error(ErrorKind::model, "no tensor x", [&] { reader.read("x", 0, 1, out.data()); });
}

TEST(HfReader, ChecksNamesAndShapes) {
  TempDir dir;
  const std::string zero8(16, '\0');
  make_folder(dir.path(),
              {{"a", "BF16", "[8]", zero8},
               {"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", "[2]", std::string(8, '\0')}});
  const HfReader reader(dir.path());
  reader.check({{"a", {8}}});
  expect_error(ErrorKind::model, "a is [8], needs [2, 4]", [&] { reader.check({{"a", {2, 4}}}); });
  expect_error(ErrorKind::model, "lacks 2 tensor(s) that its config.json calls for: b, c", [&] {
    reader.check({{"a", {8}}, {"b", {1}}, {"c", {1}}});
  });
  expect_error(ErrorKind::model, "does not have: a", [&] { reader.check({}); });

  TempDir other;
  make_folder(other.path(), {{"a", "I64", "[2]", zero8}});
  expect_error(ErrorKind::model, "a is I64", [&] { HfReader(other.path()).check({{"a", {2}}}); });
}

TEST(HfReader, IgnoresTheHeadOfATiedModelOnly) {
  TempDir tied, untied;
  const std::string w(64, 'w');
  const std::vector<Raw> tensors = {{"model.embed_tokens.weight", "BF16", "[8,4]", w},
                                    {"lm_head.weight", "BF16", "[8,4]", w}};
  make_folder(tied.path(), tensors, true);
  HfReader(tied.path()).check({{"model.embed_tokens.weight", {8, 4}}});
  make_folder(tied.path(), {tensors[0], {"lm_head.weight", "BF16", "[8,4]", std::string(64, 'v')}}, true);
  HfReader(tied.path()).check({{"model.embed_tokens.weight", {8, 4}}});  // a warning
  make_folder(untied.path(), tensors, false);
  expect_error(ErrorKind::model, "lm_head.weight", [&] {
    HfReader(untied.path()).check({{"model.embed_tokens.weight", {8, 4}}});
  });
  make_folder(untied.path(), {tensors[0]}, false);
  expect_error(ErrorKind::model, "set tie_word_embeddings to true", [&] {
    HfReader(untied.path()).check({{"model.embed_tokens.weight", {8, 4}}, {"lm_head.weight", {8, 4}}});
  });
}

class Sharded : public testing::Test {
 protected:
  void SetUp() override {
    write_file(dir_ / "config.json", config(true));
    write_file(dir_ / "m1.safetensors", file_of({{"a", "U8", "[1]", "1"}}));
    write_file(dir_ / "m2.safetensors", file_of({{"b", "U8", "[1]", "2"}}));
  }
  void index(const std::string& map) {
    write_file(dir_ / "model.safetensors.index.json", "{\"weight_map\":" + map + "}");
  }
  void refuses(const std::string& text) {
    expect_error(ErrorKind::model, text, [&] { HfReader reader(dir_.path()); });
  }
  TempDir dir_;
};

TEST_F(Sharded, ReadsAllFilesOfTheIndex) {
  index(R"({"a":"m1.safetensors","b":"m2.safetensors"})");
  const HfReader reader(dir_.path());
  EXPECT_EQ(reader.files().size(), 2u);
  char byte = 0;
  reader.read_raw("b", 0, &byte, 1);
  EXPECT_EQ(byte, '2');
}

TEST_F(Sharded, RefusesAnIndexThatDisagreesWithItsFiles) {
  index(R"({"a":"m2.safetensors","b":"m2.safetensors"})");
  refuses("says that a is in m2.safetensors");
  index(R"({"a":"m1.safetensors"})");
  write_file(dir_ / "m1.safetensors", file_of({{"a", "U8", "[1]", "1"}, {"c", "U8", "[1]", "2"}}));
  refuses("m1.safetensors holds c");
  write_file(dir_ / "m1.safetensors", file_of({{"a", "U8", "[1]", "1"}, {"b", "U8", "[1]", "2"}}));
  index(R"({"a":"m1.safetensors","b":"m2.safetensors"})");
  refuses("b is in both");
  index(R"({"a":"m1.safetensors","b":"m3.safetensors"})");
  refuses("m3.safetensors");
  for (const char* name :
       {"\"../m1.safetensors\"", "\"/etc/passwd\"", "\"..\"", "\"\"", "1", "\"m\\u00001\""}) {
    index(std::string("{\"a\":") + name + "}");
    refuses("name of a file in that folder");
  }
  index("[]");
  refuses("not an index");
}

TEST_F(Sharded, FollowsTheLinksOfTheHubCache) {
  const fs::path snapshot = dir_ / "snapshots/x", blobs = dir_ / "blobs";
  fs::create_directories(snapshot);
  write_file(blobs / "c1", config(true));
  write_file(blobs / "w1", file_of({{"a", "U8", "[1]", "1"}}));
  fs::create_symlink("../../blobs/c1", snapshot / "config.json");
  fs::create_symlink("../../blobs/w1", snapshot / "model.safetensors");
  EXPECT_TRUE(HfReader(snapshot).has("a"));
  fs::remove(blobs / "w1");
  expect_error(ErrorKind::model, "link to a file that is gone", [&] { HfReader reader(snapshot); });
}

TEST(HfReader, SaysWhatIsWrongWithFiles) {
  TempDir dir;
  write_file(dir / "config.json", config(true));
  expect_error(ErrorKind::model, "must be converted to safetensors", [&] { HfReader reader(dir.path()); });
  write_file(dir / "model.safetensors",
             "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 2\n");
  expect_error(ErrorKind::model, "git lfs pull", [&] { HfReader reader(dir.path()); });
  write_file(dir / "model.safetensors", "");
  expect_error(ErrorKind::model, "at least 8", [&] { HfReader reader(dir.path()); });
  const std::string whole = file_of({{"a", "F32", "[1000]", std::string(4000, 'x')}});
  write_file(dir / "model.safetensors", whole.substr(0, whole.size() - 1));
  expect_error(ErrorKind::model, "cut short", [&] { HfReader reader(dir.path()); });
  fs::remove(dir / "model.safetensors");
  fs::create_directory(dir / "model.safetensors");
  expect_error(ErrorKind::model, "not a regular file", [&] { HfReader reader(dir.path()); });
}

TEST(HfReader, AFileCutWhileInUseIsAnError) {
  TempDir dir;
  make_folder(dir.path(), {{"a", "F32", "[1000]", std::string(4000, 'x')}});
  const HfReader reader(dir.path());
  ASSERT_EQ(truncate((dir / "model.safetensors").c_str(), 1000), 0);
  std::vector<float> out(1000);
  expect_error(ErrorKind::model, "early", [&] { reader.read("a", 0, 1000, out.data()); });
}

TEST(HfReader, DigestSeesTheModelAndNotItsFiles) {
  TempDir dir;
  const std::string a(8, 'a'), b(8, 'b');
  make_folder(dir / "one", {{"a", "F32", "[2]", a}, {"b", "F32", "[2]", b}});
  make_folder(dir / "order", {{"b", "F32", "[2]", b}, {"a", "F32", "[2]", a}});
  make_folder(dir / "value", {{"a", "F32", "[2]", b}, {"b", "F32", "[2]", b}});
  make_folder(dir / "shape", {{"a", "F32", "[2,1]", a}, {"b", "F32", "[2]", b}});
  make_folder(dir / "config", {{"a", "F32", "[2]", a}, {"b", "F32", "[2]", b}}, false);
  const std::string digest = HfReader(dir / "one").digest();
  EXPECT_EQ(digest.size(), 16u);
  EXPECT_EQ(HfReader(dir / "order").digest(), digest);
  for (const char* other : {"value", "shape", "config"})
    EXPECT_NE(HfReader(dir / other).digest(), digest) << other;
}

TEST(HfReader, ReadsTheTestModels) {
  const HfReader reader(test_models() / "untied" / "model");
  EXPECT_EQ(reader.files().size(), 3u);
  EXPECT_EQ(reader.tensor("lm_head.weight").shape, (std::vector<int64_t>{2048, 128}));
}

}  // namespace
}  // namespace sluice::engine
