// tools/prepare.py, as `sluice prepare` runs it, and the file it writes.
#include <sys/wait.h>

#include <cstdlib>

#include <nlohmann/json.hpp>

#include "engine/python_tool.h"
#include "engine/token_file.h"
#include "tests/engine/files_util.h"

namespace sluice::engine {
namespace {

class PrepareTest : public testing::Test {
 protected:
  // The exit code; output and errors go to the file "log".
  int prepare(const std::string& arguments) {
    const std::string command = find_python().string() + " " + find_tool("prepare.py").string() + " " +
                                arguments + " --out " + out_.string() + " --json >" +
                                (dir_ / "log").string() + " 2>&1";
    return WEXITSTATUS(std::system(command.c_str()));
  }
  std::string input(const std::string& name, const std::string& text) {
    write_file(dir_ / name, text);
    return (dir_ / name).string() + " --tokenizer " + (test_models() / "tokenizer").string();
  }
  std::string log() { return read_file(dir_ / "log"); }
  std::vector<int32_t> ids(const TokenFile& file, uint64_t document) {
    std::vector<int32_t> out(file.length(document));
    file.read(file.begin(document), out);
    return out;
  }

  TempDir dir_;
  const std::filesystem::path out_ = dir_ / "out" / "t.tokens";
};

TEST_F(PrepareTest, CutsTextIntoDocuments) {
  const std::string text = "In the beginning\nGod created\n\n\nthe heaven\n";
  ASSERT_EQ(prepare(input("a.txt", text) + " --split blank-line"), 0) << log();
  const TokenFile paragraphs = TokenFile::open(out_, expect_tokens_of(test_models() / "tokenizer", 2048));
  EXPECT_EQ(paragraphs.documents(), 2u);
  EXPECT_FALSE(paragraphs.masked());
  EXPECT_EQ(ids(paragraphs, 0).back(), 0);  // the end token
  EXPECT_EQ(nlohmann::json::parse(log())["tokens"], paragraphs.tokens());

  ASSERT_EQ(prepare(input("a.txt", text) + " --split line --no-eos"), 0) << log();
  const TokenFile lines = TokenFile::open(out_);
  EXPECT_EQ(lines.documents(), 3u);
  EXPECT_NE(ids(lines, 0).back(), 0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(out_.parent_path()), {}),
            1);  // no temporary is left
}

TEST_F(PrepareTest, RefusesBadInputAndKeepsTheOldFile) {
  ASSERT_EQ(prepare(input("a.jsonl", "{\"text\": \"old\"}\n")), 0) << log();
  const std::string old = read_file(out_);
  const std::pair<std::string, std::string> bad[] = {
      {"{\"text\": \"good\"}\n{\"text\": 5}\n", "a.jsonl:2 has neither"},
      {"\n\nnot json\n", "a.jsonl:3 is not JSON"},
      {"{\"text\": \" \"}\n", "holds no text"},
      {"{\"messages\": [{\"content\": \"x\"}]}\n", "needs a role"},
  };
  for (const auto& [text, message] : bad) {
    EXPECT_EQ(prepare(input("a.jsonl", text)), 3) << text;
    EXPECT_THAT(log(), testing::HasSubstr(message));
  }
  EXPECT_EQ(prepare(input("a.txt", "\xff\xfe")), 3);
  EXPECT_EQ(prepare((dir_ / "a.txt").string() + " --tokenizer " + dir_.path().string()), 4);
  EXPECT_EQ(read_file(out_), old);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(out_.parent_path()), {}), 1);
}

TEST_F(PrepareTest, SlowChatsTrainOnTheAssistantAlone) {
  const std::string chat =
      R"({"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "God."},)"
      R"({"role": "user", "content": "When?"}, {"role": "assistant", "content": "In the beginning."}]})";
  const std::filesystem::path marked = test_models() / "tokenizer", plain = dir_ / "plain";
  std::filesystem::copy(marked, plain);
  // The same template without its generation marks: the assistant's part is found by rendering prefixes.
  auto settings = nlohmann::json::parse(read_file(plain / "tokenizer_config.json"));
  settings["chat_template"] =
      "{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}{% if m['role'] == 'assistant' %}<|end|>"
      "{% endif %}\n{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}";
  write_file(plain / "tokenizer_config.json", settings.dump());
  for (const auto& tokenizer : {marked, plain}) {
    SCOPED_TRACE(tokenizer);
    write_file(dir_ / "c.jsonl", chat + "\n");
    ASSERT_EQ(prepare((dir_ / "c.jsonl").string() + " --tokenizer " + tokenizer.string()), 0) << log();
    const TokenFile file = TokenFile::open(out_);
    ASSERT_TRUE(file.masked());
    const std::vector<int32_t> all = ids(file, 0);
    std::vector<uint8_t> mask(all.size());
    file.read_mask(0, mask);
    // Both end tokens are trained on, the beginning is not, and there are two runs of trained tokens.
    int ends = 0, runs = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] == 0) {
        ++ends;
        EXPECT_EQ(mask[i], 1);
      }
      if (i > 0 && mask[i] == 1 && mask[i - 1] == 0) ++runs;
    }
    EXPECT_EQ(ends, 2);
    EXPECT_EQ(runs, 2);
    EXPECT_EQ(mask[0], 0);
  }
}

}  // namespace
}  // namespace sluice::engine
