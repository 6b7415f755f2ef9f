#include "io/power_cut.h"

#include <gmock/gmock.h>

#include <fstream>
#include <set>
#include <thread>

#include "base/arena.h"
#include "base/units.h"
#include "io/disk_queue.h"
#include "io/thread_queue.h"
#include "tests/io/scratch.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;
using base::operator""_KiB;

constexpr uint64_t kSeeds = 60;

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::byte> page_of(char c, size_t pages = 1) {
  return std::vector<std::byte>(pages * kAlignment, static_cast<std::byte>(c));
}

// The first letter of each page.
std::string letters(const std::string& content) {
  std::string text;
  for (size_t i = 0; i < content.size(); i += kAlignment) {
    EXPECT_EQ(content.substr(i, kAlignment), std::string(kAlignment, content[i]))
        << "pages are not torn inside";
    text += content[i] == '\0' ? '0' : content[i];
  }
  return text;
}

class PowerCutTest : public ::testing::Test {
 protected:
  PowerCutTest() {
    fs::create_directory(scratch_ / "disk");
    std::ofstream(scratch_ / "disk/old") << std::string(4 * kAlignment, 'o');
  }
  std::set<std::string> states_of(const PowerCutRecorder& recorder, size_t cut, const std::string& name) {
    std::set<std::string> states;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      recorder.materialise(cut, seed, scratch_ / "after");
      states.insert(fs::exists(scratch_ / ("after/" + name)) ? letters(text_of(scratch_ / ("after/" + name)))
                                                             : "gone");
    }
    return states;
  }
  Scratch scratch_{Scratch::On::tmpfs};
};

TEST_F(PowerCutTest, UnsyncedWritesAreLostKeptOrTorn) {
  PowerCutRecorder recorder(scratch_ / "disk");
  const File file = File::open(scratch_ / "disk/old", OpenMode::read_write, {.observer = &recorder});
  file.write_at(kAlignment, page_of('n', 2));
  const size_t written = recorder.events();
  EXPECT_EQ(states_of(recorder, 0, "old"), std::set<std::string>{"oooo"});
  EXPECT_EQ(states_of(recorder, written, "old"), (std::set<std::string>{"oooo", "onno", "onoo", "oono"}));
  recorder.materialise(written, 0, scratch_ / "after");
  EXPECT_EQ(letters(text_of(scratch_ / "after/old")), "oooo") << "seed 0 loses all";
  recorder.materialise(written, 1, scratch_ / "after");
  EXPECT_EQ(letters(text_of(scratch_ / "after/old")), "onno") << "seed 1 keeps all";
}

TEST_F(PowerCutTest, ASyncSavesWhatHadBeenWrittenOnceItHasEnded) {
  PowerCutRecorder recorder(scratch_ / "disk");
  const File file = File::open(scratch_ / "disk/old", OpenMode::read_write, {.observer = &recorder});
  file.write_at(0, page_of('n', 4));
  file.sync();
  const size_t synced = recorder.events();
  EXPECT_THAT(states_of(recorder, synced - 1, "old"), ::testing::Contains("oooo")) << "begun, not ended";
  EXPECT_EQ(states_of(recorder, synced, "old"), std::set<std::string>{"nnnn"});
  file.write_at(0, page_of('m'));
  EXPECT_EQ(states_of(recorder, recorder.events(), "old"), (std::set<std::string>{"nnnn", "mnnn"}));
}

TEST_F(PowerCutTest, ASyncOfOneFileSavesNoOther) {
  PowerCutRecorder recorder(scratch_ / "disk");
  const File a = File::create(scratch_ / "disk/a", kAlignment, {.observer = &recorder});
  const File old = File::open(scratch_ / "disk/old", OpenMode::read_write, {.observer = &recorder});
  a.write_at(0, page_of('a'));
  old.sync();
  sync_directory(scratch_ / "disk", &recorder);
  EXPECT_THAT(states_of(recorder, recorder.events(), "a"), ::testing::UnorderedElementsAre("", "0", "a"));
}

TEST_F(PowerCutTest, ANewNameNeedsASyncOfItsFolder) {
  PowerCutRecorder recorder(scratch_ / "disk");
  const File a = File::create(scratch_ / "disk/a", kAlignment, {.observer = &recorder});
  a.write_at(0, page_of('a'));
  a.sync();
  EXPECT_EQ(states_of(recorder, recorder.events(), "a"), (std::set<std::string>{"gone", "a"}));
  sync_directory(scratch_ / "disk", &recorder);
  EXPECT_EQ(states_of(recorder, recorder.events(), "a"), std::set<std::string>{"a"});
}

TEST_F(PowerCutTest, FoldersMoveWithWhatIsInThem) {
  PowerCutRecorder recorder(scratch_ / "disk");
  const fs::path disk = scratch_ / "disk";
  make_directory(disk / "new.tmp", &recorder);
  {
    const File a = File::create(disk / "new.tmp/a", kAlignment, {.observer = &recorder});
    a.write_at(0, page_of('a'));
    a.sync();
  }
  link_file(disk / "new.tmp/a", disk / "new.tmp/b", &recorder);
  sync_directory(disk / "new.tmp", &recorder);
  rename_path(disk / "new.tmp", disk / "new", &recorder);
  const size_t renamed = recorder.events();
  EXPECT_EQ(states_of(recorder, renamed, "new/a"), (std::set<std::string>{"gone", "a"}));
  sync_directory(disk, &recorder);
  EXPECT_EQ(states_of(recorder, recorder.events(), "new/a"), std::set<std::string>{"a"});
  EXPECT_EQ(states_of(recorder, recorder.events(), "new.tmp/a"), std::set<std::string>{"gone"});
  recorder.materialise(recorder.events(), 0, scratch_ / "after");
  EXPECT_EQ(fs::hard_link_count(scratch_ / "after/new/b"), 2u);
  remove_tree(disk / "new", &recorder);
  EXPECT_EQ(states_of(recorder, recorder.events(), "new/a"), (std::set<std::string>{"gone", "a"}));
}

TEST_F(PowerCutTest, AnExchangeOfNamesHappensOrNot) {
  const fs::path disk = scratch_ / "disk";
  for (const char name : {'a', 'b'}) {
    fs::create_directory(disk / std::string(1, name));
    std::ofstream(disk / std::string(1, name) / "file") << std::string(kAlignment, name);
  }
  PowerCutRecorder recorder(disk);
  EXPECT_TRUE(can_exchange_paths(disk));
  EXPECT_EQ(recorder.events(), 0u);
  exchange_paths(disk / "a", disk / "b", &recorder);
  EXPECT_EQ(letters(text_of(disk / "a/file")), "b");
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    recorder.materialise(1, seed, scratch_ / "after");
    seen.insert(letters(text_of(scratch_ / "after/a/file")) + letters(text_of(scratch_ / "after/b/file")));
  }
  EXPECT_EQ(seen, (std::set<std::string>{"ab", "ba"}));
  sync_directory(disk, &recorder);
  EXPECT_EQ(states_of(recorder, recorder.events(), "a/file"), std::set<std::string>{"b"});
  EXPECT_THROW(exchange_paths(disk / "a", disk / "none"), base::Error);
}

TEST_F(PowerCutTest, FoldersMayBeMadeAndRemovedByMany) {
  const fs::path folder = scratch_ / "shared";
  for (int round = 0; round < 20; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] { EXPECT_NO_THROW(ensure_directory(folder)); });
    for (std::thread& thread : threads) thread.join();
    for (int i = 0; i < 50; ++i) std::ofstream(folder / std::to_string(i)) << "x";
    threads.clear();
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] { EXPECT_NO_THROW(remove_tree(folder)); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_FALSE(fs::exists(folder));
  }
  std::ofstream(folder) << "a file";
  EXPECT_THROW(ensure_directory(folder), base::Error);
}

TEST_F(PowerCutTest, SeesWhatQueuesDo) {
  PowerCutRecorder recorder(scratch_ / "disk");
  const File file = File::open(scratch_ / "disk/old", OpenMode::read_write, {.observer = &recorder});
  const base::Arena memory(8_KiB, "the test");
  std::fill(memory.all().begin(), memory.all().end(), std::byte{'q'});
  bool failing = true;
  const auto queue = make_thread_queue({.depth = 1, .alter_result = [&](IoOp, uint64_t, int64_t result) {
                                          return failing ? int64_t{-EIO} : result;
                                        }});
  EXPECT_THROW(submit(*queue, {IoOp::write, &file, memory.data(), 8_KiB, 0}).get(), base::Error);
  failing = false;
  submit(*queue, {.op = IoOp::sync, .file = &file}).get();
  EXPECT_THAT(states_of(recorder, recorder.events(), "old"), ::testing::Contains("oooo"))
      << "no sync saves a failed write";
  submit(*queue, {IoOp::write, &file, memory.data(), 8_KiB, 0}).get();
  submit(*queue, {.op = IoOp::sync, .file = &file}).get();
  EXPECT_EQ(states_of(recorder, recorder.events(), "old"), std::set<std::string>{"qqoo"});
}

TEST_F(PowerCutTest, TheLastStateIsWhatIsReallyThere) {
  PowerCutRecorder recorder(scratch_ / "disk");
  const File a = File::create(scratch_ / "disk/a", 100, {.observer = &recorder});
  a.write_at(10, std::vector<std::byte>(50, std::byte{'x'}));
  recorder.materialise(recorder.events(), 1, scratch_ / "after");
  EXPECT_EQ(text_of(scratch_ / "after/a"), text_of(scratch_ / "disk/a"));
  EXPECT_THAT(recorder.describe(recorder.events()), ::testing::HasSubstr("end of 3 write of a"));
}

}  // namespace
}  // namespace sluice::io
