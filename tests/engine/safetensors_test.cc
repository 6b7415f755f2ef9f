#include "engine/safetensors.h"

#include <random>

#include "tests/engine/files_util.h"

namespace sluice::engine {
namespace {

using base::ErrorKind;

SafetensorsHeader parse(const std::string& file) {
  const uint64_t bytes = safetensors_header_bytes(std::string_view(file).substr(0, 8), file.size(), "f");
  return parse_safetensors_header(std::string_view(file).substr(8, bytes), file.size(), "f");
}

void refuses(const std::string& text, const std::string& file) {
  SCOPED_TRACE(file.substr(0, 200));
  expect_error(ErrorKind::model, text, [&] { parse(file); });
}

// One tensor with the given fields and data.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets, size_t data) {
  return safetensors_bytes(
      R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
      std::string(data, 'x'));
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirData) {
  const SafetensorsHeader h = parse(safetensors_bytes(
      R"({"b":{"dtype":"F32","shape":[],"data_offsets":[4,8]},"__metadata__":{"format":"pt"},)"
      R"("a":{"shape":[1,2],"data_offsets":[0,4],"dtype":"BF16"},"empty":{"dtype":"I64","shape":[3,0],"data_offsets":[8,8]}}   )",
      "12345678"));
  ASSERT_EQ(h.tensors.size(), 3u);
  EXPECT_EQ(h.tensors[0].name, "a");
  EXPECT_EQ(h.tensors[0].shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(h.tensors[1].name, "b");
  EXPECT_EQ(h.tensors[1].count(), 1u);
  EXPECT_EQ(h.tensors[2].count(), 0u);
  ASSERT_EQ(h.metadata.size(), 1u);
  EXPECT_EQ(h.metadata[0].second, "pt");
}

TEST(Safetensors, WritesWhatItReads) {
  SafetensorsHeader h;
  h.metadata = {{"format", "pt"}};
  h.tensors = {{"a", "BF16", {2, 3}, 0, 12}, {"b", "F32", {}, 12, 16}};
  const std::string bytes = write_safetensors_header(h);
  EXPECT_EQ(bytes.size() % 8, 0u);
  const SafetensorsHeader back = parse(bytes + std::string(16, 'x'));
  EXPECT_EQ(back.data_start, bytes.size());
  EXPECT_EQ(back.tensors[1].begin, 12u);
  EXPECT_EQ(back.metadata, h.metadata);
}

TEST(Safetensors, RefusesImpossibleLengths) {
  refuses("at least 8", "");
  refuses("at least 8", "1234567");
  refuses("more than 100000000", u64_bytes(UINT64_MAX) + "{}");
  refuses("more than 100000000", u64_bytes(UINT64_MAX - 7) + "{}");
  refuses("more than 100000000", u64_bytes(100'000'001) + "{}");
  refuses("cut short", u64_bytes(3) + "{}");
  refuses("bytes follow the last tensor", safetensors_bytes("{}", "x"));
  EXPECT_TRUE(parse(safetensors_bytes("{}", "")).tensors.empty());
}

TEST(Safetensors, RefusesWhatIsNotTheFormatsJson) {
  refuses("begin with '{'", safetensors_bytes(" {}", ""));
  refuses("begin with '{'", safetensors_bytes("", ""));
  refuses("begin with '{'", safetensors_bytes("[]", ""));
  refuses("not valid JSON", safetensors_bytes("{\"a\"", ""));
  refuses("not valid JSON", safetensors_bytes("{}x", ""));
  refuses("not valid JSON", safetensors_bytes(std::string("{}\0", 3), ""));
  refuses("not valid JSON", safetensors_bytes("{\"\xff\xfe\":{}}", ""));
  refuses("null", safetensors_bytes(R"({"a":null})", ""));
  refuses("a list", safetensors_bytes("{\"a\":" + std::string(100'000, '[') + "}", ""));
  refuses("an object", safetensors_bytes(R"({"a":{"dtype":)" + std::string(100'000, '{') + "}", ""));
}

TEST(Safetensors, RefusesMalformedEntries) {
  refuses("unknown type", one(R"("F33")", "[1]", "[0,4]", 4));
  refuses("a number", one("4", "[1]", "[0,4]", 4));
  refuses("a list", one(R"(["F32"])", "[1]", "[0,4]", 4));
  refuses("negative", one(R"("F32")", "[-1]", "[0,4]", 4));
  refuses("1.0", one(R"("F32")", "[1.0]", "[0,4]", 4));
  refuses("4e0", one(R"("F32")", "[1]", "[0,4e0]", 4));
  refuses("18446744073709551616", one(R"("F32")", "[1]", "[0,18446744073709551616]", 4));
  refuses("2^48", one(R"("F32")", "[281474976710656]", "[0,4]", 4));
  refuses("a list", one(R"("F32")", "[[1]]", "[0,4]", 4));
  refuses("a number", one(R"("F32")", "1", "[0,4]", 4));
  refuses("1 data_offsets", one(R"("F32")", "[1]", "[4]", 4));
  refuses("3 data_offsets", one(R"("F32")", "[1]", "[0,4,4]", 4));
  refuses("0 data_offsets", one(R"("F32")", "[1]", "[]", 4));
  refuses("lacks", safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1]}})", "1234"));
  refuses("unknown key",
          safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", "1234"));
  refuses("control character",
          safetensors_bytes(R"({"a\u0000b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234"));
}

TEST(Safetensors, RefusesDuplicateKeys) {
  const std::string a = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  refuses("twice", safetensors_bytes("{" + a + "," + a + "}", "1"));
  refuses("twice",
          safetensors_bytes(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", "1"));
  refuses("twice", safetensors_bytes(R"({"__metadata__":{"k":"1","k":"2"}})", ""));
  refuses("twice", safetensors_bytes(R"({"__metadata__":{},"__metadata__":{}})", ""));
}

TEST(Safetensors, RefusesMetadataThatIsNotText) {
  refuses("a number", safetensors_bytes(R"({"__metadata__":{"k":1}})", ""));
  refuses("an object", safetensors_bytes(R"({"__metadata__":{"k":{}}})", ""));
  refuses("a string", safetensors_bytes(R"({"__metadata__":"k"})", ""));
}

TEST(Safetensors, RefusesRangesThatDoNotFit) {
  refuses("need 4 bytes", one(R"("F32")", "[1]", "[4,0]", 4));
  refuses("need 4 bytes", one(R"("F32")", "[1]", "[0,2]", 2));
  refuses("need 2 bytes", one(R"("BF16")", "[1]", "[0,4]", 4));
  refuses("hole", one(R"("F32")", "[1]", "[4,8]", 8));
  refuses("cut short", one(R"("F32")", "[2]", "[0,8]", 4));
  refuses("1 bytes follow", one(R"("F32")", "[1]", "[0,4]", 5));
  refuses("impossible", one(R"("F4")", "[3]", "[0,2]", 2));
  // 2^32 x 2^32 x 4 bytes wraps to exactly 0.
  refuses("impossible", one(R"("F32")", "[4294967296,4294967296]", "[0,0]", 0));
  refuses("impossible", one(R"("U8")", "[281474976710655,281474976710655,281474976710655]", "[0,1]", 1));
  const std::string a = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)";
  refuses("overlap",
          safetensors_bytes(a + R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", "123456"));
  refuses("overlap",
          safetensors_bytes(a + R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "1234"));
  refuses("hole", safetensors_bytes(a + R"("b":{"dtype":"U8","shape":[1],"data_offsets":[5,6]}})", "123456"));
}

TEST(Safetensors, ReadsManyTensors) {
  std::string json = "{";
  constexpr int kTensors = 50'000;
  for (int i = 0; i < kTensors; ++i)
    json += (i > 0 ? "," : "") +
            ("\"t" + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})");
  EXPECT_EQ(parse(safetensors_bytes(json + "}", "")).tensors.size(), static_cast<size_t>(kTensors));
}

// Whatever the bytes, the answer is a header whose ranges lie inside the file, or Error(model).
TEST(Safetensors, SurvivesMutations) {
  const std::string good = safetensors_bytes(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
      "123456789012");
  const std::string pieces[] = {"{",
                                "}",
                                "[",
                                "]",
                                ",",
                                ":",
                                "\"",
                                "-",
                                "1",
                                "9999999999999999999",
                                "null",
                                "e5",
                                "\\u0000",
                                "a",
                                "\"a\"",
                                "data_offsets",
                                std::string(1, '\0'),
                                "\xff"};
  std::mt19937 random(7);
  int accepted = 0;
  for (int i = 0; i < 30'000; ++i) {
    std::string file = good;
    for (unsigned n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % file.size();
      switch (random() % 4) {
        case 0:
          file[at] = static_cast<char>(random());
          break;
        case 1:
          file.erase(at, 1 + random() % 5);
          break;
        case 2:
          file.insert(at, pieces[random() % std::size(pieces)]);
          break;
        default:
          file.replace(at, 1, pieces[random() % std::size(pieces)]);
          break;
      }
      if (file.empty()) break;
    }
    if (random() % 2 == 0 &&
        file.size() > 20) {  // give the header its right length, to get past the first check
      const size_t end = file.rfind('}');
      if (end != std::string::npos && end >= 8) file.replace(0, 8, u64_bytes(end - 7));
    }
    try {
      const SafetensorsHeader h = parse(file);
      ++accepted;
      for (const TensorEntry& t : h.tensors) {
        ASSERT_LE(t.begin, t.end);
        ASSERT_LE(h.data_start + t.end, file.size());
        ASSERT_EQ(t.count() * dtype_bits(t.dtype), (t.end - t.begin) * 8);
      }
    } catch (const base::Error& e) {
      ASSERT_EQ(e.kind(), ErrorKind::model) << e.what();
    }
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace sluice::engine
