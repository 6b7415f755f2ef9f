#include "tests/apps/run_fixture.h"

#include <sys/mount.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "base/hash.h"

namespace sluice::apps {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

std::string read_all(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_all(const fs::path& file, const std::string& text) { std::ofstream(file, std::ios::binary) << text; }

void edit(const fs::path& file, const std::string& from, const std::string& to) {
  std::string text = read_all(file);
  const size_t found = text.find(from);
  if (found == std::string::npos) throw std::runtime_error(from + " is not in " + file.string());
  write_all(file, text.replace(found, from.size(), to));
}

void overwrite(const fs::path& file, uint64_t offset, const std::string& bytes) {
  std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(static_cast<std::streamoff>(offset));
  out << bytes;
  if (!out.flush()) throw std::runtime_error("cannot write " + file.string());
}

void RunFixture::SetUp() {
  std::string name = (fs::temp_directory_path() / "sluice-bad-XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  folder_ = name;
  fresh_model();
  const json config{{"model", {{"path", "model"}, {"loss_chunk", 64}}},
                    {"data",
                     {{"train", (test_models() / "train.tokens").string()},
                      {"eval", (test_models() / "eval.tokens").string()},
                      {"sequence_length", 64}}},
                    {"steps", 2},
                    {"train_micro_batch_size_per_gpu", 2},
                    {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}},
                    {"zero_optimization", {{"stage", 3}, {"offload_param", {{"device", "nvme"}}}, {"offload_optimizer", {{"device", "nvme"}}}}},
                    {"run", {{"dir", "run"}}},
                    {"storage", {{"tile", 65536}}},
                    {"memory", {{"gpu", "64MiB"}, {"host", "64MiB"}}},
                    {"machine", {{"device", "cpu"}, {"compute_threads", 1}}}};
  write_all(at("config.json"), config.dump(2));
}

void RunFixture::TearDown() { fs::remove_all(folder_); }

void RunFixture::fresh_model() const {
  fs::remove_all(at("model"));
  fs::copy(test_models() / "tied" / "model", at("model"));
}

void RunFixture::fresh_run() const {
  if (!fs::exists(at("finished"))) succeed(train({"run.dir=finished"}));
  fs::remove_all(at("run"));
  fs::copy(at("finished"), at("run"), fs::copy_options::recursive);
}

Words RunFixture::train(const Words& set, const Words& more) {
  Words words{"train", "config.json"};
  for (const std::string& assignment : set) words.insert(words.end(), {"--set", assignment});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words RunFixture::resume(const Words& set) { return train(set, {"--resume", "auto"}); }

std::string RunFixture::succeed(const Words& arguments) const {
  const ProgramResult result = run(arguments);
  EXPECT_EQ(result.status, 0) << result.err;
  return result.err;
}

std::map<std::string, std::string> RunFixture::snapshot() const {
  std::map<std::string, std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
    const std::string name = fs::relative(entry.path(), folder_).string();
    if (name.starts_with("output-")) continue;
    if (entry.is_directory()) {
      found[name] = "folder";
    } else {
      const std::string bytes = read_all(entry.path());
      found[name] = std::to_string(bytes.size()) + " " + base::hash_hex(base::xxh3(bytes.data(), bytes.size()));
    }
  }
  return found;
}

void RunFixture::expect_refused(const Words& arguments, int code, const Words& fragments) const {
  const auto before = snapshot();
  const ProgramResult result = run(arguments);
  EXPECT_EQ(result.status, code) << result.err;
  EXPECT_EQ(result.out, "");
  const size_t begin = result.err.starts_with("sluice: ") ? 0 : result.err.find("\nsluice: ") + 1;
  const std::string message = result.err.substr(std::min(begin, result.err.size()));
  EXPECT_THAT(message, testing::StartsWith("sluice: ")) << result.err;
  EXPECT_EQ(message.find("\nsluice: "), std::string::npos) << "one message: " << result.err;
  for (const std::string& fragment : fragments) EXPECT_THAT(message, HasSubstr(fragment));
  for (const char* ugly : {"internal error", "terminate", "exception", "check failed", "what()"}) EXPECT_THAT(result.err, Not(HasSubstr(ugly)));
  EXPECT_EQ(snapshot(), before);
}

json RunFixture::inspect(const std::string& name) const {
  const ProgramResult result = run({"inspect", name, "--json"});
  EXPECT_EQ(result.status, 0) << result.err;
  return result.status == 0 ? json::parse(result.out) : json::object();
}

size_t RunFixture::steps_written(const std::string& name) const {
  const std::string text = read_all(at(name) / "metrics.jsonl");
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

SmallDisk::SmallDisk(fs::path folder, const std::string& size) : folder_(std::move(folder)) {
  fs::create_directory(folder_);
  valid_ = mount("tmpfs", folder_.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
}

SmallDisk::~SmallDisk() {
  if (valid_) umount2(folder_.c_str(), MNT_DETACH);
}

}  // namespace sluice::apps
