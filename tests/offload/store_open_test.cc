// What OPEN does with damage, with another model, and with leftovers.
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <fstream>

#include "io/file_observer.h"
#include "store_fixture.h"

namespace sluice::offload::test {
namespace {

using base::ErrorKind;

class OpenTest : public StoreTest {
 protected:
  // A store at step 2: published in slot 0 by record 3 (index 1); record 2 (index 0) is step 1 in slot 1.
  void make_step_2() {
    const auto store = create();
    train_step(*store, layout, 1);
    train_step(*store, layout, 2);
  }
  // Refuses, and changes nothing.
  void expect_refused(ErrorKind kind, const std::vector<std::string>& words) {
    const auto before = snapshot(scratch.path());
    expect_error(kind, words, [&] { open(); });
    EXPECT_TRUE(snapshot(scratch.path()) == before);
    expect_error(kind, words, [&] { Store::open_read_only(options().run_dir, layout, nullptr); });
  }
  bool has_note(const OpenReport& report, const std::string& word) const {
    for (const std::string& note : report.notes)
      if (note.find(word) != std::string::npos) return true;
    return false;
  }
};

TEST_F(OpenTest, FallsBackToTheOtherRecordWhenTheNewestIsDamagedAndVerifies) {
  make_step_2();
  flip_byte(super(), record_offset(3) + 40);
  OpenReport report;
  auto store = open(&report);
  expect_step(*store, 1);
  EXPECT_TRUE(has_note(report, "it may have held step 2"));
  EXPECT_TRUE(has_note(report, "verified"));
  train_step(*store, layout, 2, 5);  // over the slot and the record that were lost
  store.reset();
  OpenReport again;
  store = open(&again);
  expect_state(*store, 2, meta_of(2), 5);
  EXPECT_TRUE(again.notes.empty());
}

TEST_F(OpenTest, ADamagedOlderRecordCostsAVerification) {
  make_step_2();
  flip_byte(super(), record_offset(2) + 100);
  OpenReport report;
  expect_step(*open(&report), 2);
  EXPECT_TRUE(has_note(report, "the other record is damaged"));
  EXPECT_TRUE(has_note(report, "verified"));
}

TEST_F(OpenTest, ATornNewestRecordIsNotBelieved) {
  make_step_2();
  Page page = read_page(super(), record_offset(3));
  const Page older = read_page(super(), record_offset(2));
  std::copy(older.begin() + 512, older.end(), page.begin() + 512);
  write_page(super(), record_offset(3), page);
  expect_step(*open(), 1);
}

// Without the verification this would present the step whose record is gone, over data that the next step had
// begun to change.
TEST_F(OpenTest, FallbackToAnOverwrittenSlotIsRefused) {
  make_step_2();
  {
    const auto store = open();
    store->begin_writes();
    write_extents(*store, layout, 3);  // into slot 1, which record 2 names
  }
  flip_byte(super(), record_offset(3) + 40);
  expect_refused(ErrorKind::disk, {"r000.d0.s1", "damaged", "block 0"});
}

// Writes and flushes in order, by file name.
class Log final : public io::FileObserver {
 public:
  void created(const io::File&, uint64_t) override {}
  uint64_t write_begins(const io::File& file, uint64_t offset, std::span<const std::byte> data) override {
    lines.push_back(fmt::format("write {} at {} ({})", file.path().filename().string(), offset, data.size()));
    written.assign(data.begin(), data.end());
    return 0;
  }
  void write_ended(uint64_t) override {}
  uint64_t sync_begins(const io::File& file) override {
    lines.push_back("sync " + file.path().filename().string());
    return 0;
  }
  void sync_ended(uint64_t) override {}
  void directory_made(const fs::path&) override {}
  void directory_synced(const fs::path& path) override {
    lines.push_back("sync folder " + path.filename().string());
  }
  void renamed(const fs::path&, const fs::path&) override {}
  void exchanged(const fs::path&, const fs::path&) override {}
  void linked(const fs::path&, const fs::path&) override {}
  void removed(const fs::path&) override { lines.push_back("remove"); }

  std::vector<std::string> lines;
  std::vector<std::byte> written;
};

// A flush that failed in the last process is not repaired by another flush: the kernel holds the record for
// clean.
TEST_F(OpenTest, TheTakenRecordIsWrittenAgainAndFlushedBeforeAnythingElse) {
  make_step_2();
  fs::create_directories(options().run_dir / "store.tmp");
  const Page record = read_page(super(), record_offset(3));
  Log log;
  StoreOptions o = options();
  o.observer = &log;
  Store::open(o, layout, nullptr);
  EXPECT_EQ(log.lines,
            (std::vector<std::string>{"write SUPER at 1048576 (4096)", "sync SUPER", "sync r000.d0.s0",
                                      "sync r000.d0.s1", "sync folder run", "remove", "sync folder run"}));
  EXPECT_TRUE(std::equal(record.begin(), record.end(), log.written.begin(), log.written.end()));
}

TEST_F(OpenTest, BothRecordsDamaged) {
  make_step_2();
  flip_byte(super(), record_offset(2));
  flip_byte(super(), record_offset(3));
  expect_refused(ErrorKind::disk, {"SUPER", "neither"});
}

TEST_F(OpenTest, RecordOfAnotherStoreOrInTheWrongPlaceDoesNotCount) {
  make_step_2();
  Record record;
  ASSERT_EQ(decode_record(read_page(super(), record_offset(3)), &record), PageState::valid);
  Record foreign = record;
  foreign.seq = 4;
  foreign.uuid[0] ^= std::byte{1};
  write_page(super(), record_offset(4), encode_record(foreign));
  expect_step(*open(), 2);
  foreign = record;
  foreign.seq = 5;  // odd, but at the even place
  write_page(super(), record_offset(4), encode_record(foreign));
  expect_step(*open(), 2);
}

TEST_F(OpenTest, HeaderTableAndRecordMustAgree) {
  make_step_2();
  const Page header = read_page(slot_file(0), 0);
  flip_byte(slot_file(0), 50);
  expect_refused(ErrorKind::disk, {"r000.d0.s0", "header is damaged"});
  write_page(slot_file(0), 0, header);
  flip_byte(slot_file(0), kTableAt + 3);
  expect_refused(ErrorKind::disk, {"r000.d0.s0", "table"});
  flip_byte(slot_file(0), kTableAt + 3);

  SlotHeader other;
  ASSERT_EQ(decode_header(header, &other), PageState::valid);
  other.gen += 2;
  write_page(slot_file(0), 0, encode_header(other));
  expect_refused(ErrorKind::disk, {"generation 5", "the record says 3"});
  // A table that is whole, but another one.
  Page table = read_page(slot_file(0), kTableAt);
  table[0] ^= std::byte{1};
  write_page(slot_file(0), kTableAt, table);
  ASSERT_EQ(decode_header(header, &other), PageState::valid);
  std::vector<uint64_t> entries(other.extents);
  std::memcpy(entries.data(), table.data(), entries.size() * 8);
  other.table_hash = table_hash(entries);
  write_page(slot_file(0), 0, encode_header(other));
  expect_refused(ErrorKind::disk, {"not the one that was published"});
}

TEST_F(OpenTest, AFlippedBitInAnyExtentIsFoundByVerifyAndNamed) {
  make_step_2();
  for (uint32_t tile = 0; tile < layout.tiles().size(); ++tile)
    for (const Part part : {Part::weights, Part::state}) {
      const StoreGeometry::Place place = StoreGeometry(layout).place(tile, part);
      const uint64_t field = part == Part::weights ? 0 : layout.tiles()[tile].padded * 2;  // m
      const uint64_t at = place.offset + field + layout.tiles()[tile].count * 2 - 1;
      flip_byte(slot_file(0), at);
      StoreOptions o = options();
      { open(); }  // not verified at open: the same boot, both records whole
      o.verify_on_open = true;
      const std::string offset = std::to_string(place.offset),
                        block = "block " + std::to_string(layout.tiles()[tile].block);
      expect_error(ErrorKind::disk, {part == Part::weights ? "weights" : "state", "offset " + offset, block},
                   [&] { Store::open(o, layout, nullptr); });
      expect_error(ErrorKind::disk, {offset}, [&] { open()->verify(); });
      flip_byte(slot_file(0), at);
    }
  expect_step(*open(), 2);
}

TEST_F(OpenTest, DamageToTheBaseFileIsFound) {
  const Layout l = small_layout(Schema::bf16, {.freeze_embedding = true});
  { create(options(), l); }
  const fs::path base = store_dir() / "r000.d0.base";
  flip_byte(base, kDataAlign + 77);
  expect_error(ErrorKind::disk, {"r000.d0.base", "embed"},
               [&] { Store::open(options(), l, nullptr)->verify(); });
  flip_byte(base, 77);
  expect_error(ErrorKind::disk, {"r000.d0.base", "header"}, [&] { Store::open(options(), l, nullptr); });
  fs::remove(base);
  expect_error(ErrorKind::disk, {"r000.d0.base", "missing"}, [&] { Store::open(options(), l, nullptr); });
}

TEST_F(OpenTest, AfterARestartOfTheMachineTheSlotIsVerified) {
  make_step_2();
  SlotHeader header;
  ASSERT_EQ(decode_header(read_page(slot_file(0), 0), &header), PageState::valid);
  EXPECT_EQ(header.boot_id, boot_id());
  EXPECT_NE(header.attempt.find(std::to_string(getpid())), std::string::npos);
  header.boot_id = "00000000-0000-0000-0000-000000000000";
  write_page(slot_file(0), 0, encode_header(header));
  OpenReport report;
  expect_step(*open(&report), 2);
  EXPECT_TRUE(has_note(report, "started again"));
  flip_byte(slot_file(0), kDataAlign);
  expect_refused(ErrorKind::disk, {"weights", "embed"});
}

TEST_F(OpenTest, TruncatedOrMissingFiles) {
  make_step_2();
  const uint64_t size = fs::file_size(slot_file(1));
  fs::resize_file(slot_file(1), size - kPageBytes);  // not the published slot
  expect_refused(ErrorKind::disk, {"r000.d0.s1", std::to_string(size)});
  fs::resize_file(slot_file(1), size);
  fs::rename(slot_file(1), scratch.path() / "away");
  expect_refused(ErrorKind::disk, {"r000.d0.s1"});
  fs::rename(scratch.path() / "away", slot_file(1));
  fs::resize_file(super(), kPageBytes);
  expect_refused(ErrorKind::disk, {"SUPER"});
}

TEST_F(OpenTest, DamagedLayoutFile) {
  make_step_2();
  std::ofstream(store_dir() / "layout.json") << "{\"format\": \"sluice-store\", \"version\": 1";
  expect_refused(ErrorKind::disk, {"layout.json", "damaged"});
  std::ofstream(store_dir() / "layout.json") << "{\"format\": \"sluice-store\", \"version\": 2}";
  expect_refused(ErrorKind::disk, {"layout.json", "version 2"});
  fs::remove(store_dir() / "layout.json");
  expect_refused(ErrorKind::disk, {"layout.json"});
}

TEST_F(OpenTest, NoStore) {
  expect_error(ErrorKind::disk, {"no store"}, [&] { open(); });
  expect_error(ErrorKind::disk, {"no store"},
               [&] { Store::open_read_only(options().run_dir, layout, nullptr); });
  EXPECT_FALSE(fs::exists(options().run_dir));
}

TEST_F(OpenTest, AnotherModelIsADiskErrorAnotherSchemaOrTrainableSetAConfigError) {
  make_step_2();
  const auto before = snapshot(scratch.path());
  const auto refused = [&](ErrorKind kind, const std::vector<std::string>& words, const StoreOptions& o,
                           const Layout& l) {
    expect_error(kind, words, [&] { Store::open(o, l, nullptr); });
    EXPECT_TRUE(snapshot(scratch.path()) == before);
  };
  StoreOptions o = options();
  o.model_digest = "d2";
  refused(ErrorKind::disk, {"another model", "d1", "d2"}, o, layout);
  o = options();
  refused(ErrorKind::disk, {"another model", "layer.matrix [520, 128]", "[521, 128]"}, o,
          small_layout(Schema::bf16, {.rows = 521}));
  ModelDesc tied = small_model();
  tied.tied = true;
  refused(ErrorKind::disk, {"another model", "tied"}, o, Layout(tied, Schema::bf16, kLeafElements));
  refused(ErrorKind::config, {"schema bf16", "fp32", "cannot be changed"}, o, small_layout(Schema::fp32));
  refused(ErrorKind::config, {"layer.norm trainable", "frozen", "cannot be changed"}, o,
          small_layout(Schema::bf16, {.freeze_norm = true}));
}

TEST_F(OpenTest, ClearsWhatAnInterruptedCreationLeft) {
  make_step_2();
  fs::create_directories(options().run_dir / "store.tmp");
  std::ofstream(options().run_dir / "store.tmp/layout.json") << "{";
  OpenReport report;
  expect_step(*open(&report), 2);
  EXPECT_TRUE(has_note(report, "store.tmp"));
  EXPECT_FALSE(fs::exists(options().run_dir / "store.tmp"));
}

// store.tmp may name a data folder; nothing but a folder of its own uuid is ever removed.
TEST_F(OpenTest, LeftoversNeverTakeForeignFolders) {
  make_step_2();
  const fs::path tmp = options().run_dir / "store.tmp";
  const fs::path precious = scratch.path() / "precious";
  fs::create_directories(precious / "inside");
  std::ifstream in(store_dir() / "layout.json");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::string none = "\"drives\":[\".\"]";
  ASSERT_NE(text.find(none), std::string::npos);
  fs::create_directories(tmp);
  std::ofstream(tmp / "layout.json") << text.replace(text.find(none), none.size(),
                                                     "\"drives\":[\"" + precious.string() + "\"]");
  expect_step(*open(), 2);
  EXPECT_FALSE(fs::exists(tmp));
  EXPECT_TRUE(fs::exists(precious / "inside"));
}

TEST_F(OpenTest, AFailedCreationLeavesNothing) {
  StoreOptions o = options();
  o.paths = {scratch.path() / "nvme"};
  fs::create_directory(o.paths[0]);
  const auto before = snapshot(scratch.path());
  int calls = 0;
  expect_error(ErrorKind::model, {"shard 2"}, [&] {
    Store::create(o, layout, meta_of(0), [&](const Tile&, std::span<std::byte>, std::span<std::byte>) {
      if (++calls == 2) base::fail(ErrorKind::model, "shard 2 is torn");
    });
  });
  EXPECT_TRUE(snapshot(scratch.path()) == before);
  expect_step(*create(o, layout), 0);
}

TEST_F(OpenTest, AFullDiskIsRefusedBeforeAnythingIsWritten) {
  const fs::path disk = scratch.path() / "disk";
  fs::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=8m") != 0)
    GTEST_SKIP() << "cannot mount a small disk here";
  StoreOptions o = options();
  o.paths = {disk};
  const Layout big = small_layout(Schema::bf16, {.rows = 1500});
  expect_error(ErrorKind::disk,
               {"not enough disk space", disk.string(), "8.00 MiB is free", "2 slots", "storage.paths", "storage.durable to \"none\""},
               [&] { create(o, big); });
  EXPECT_TRUE(fs::is_empty(disk));
  EXPECT_FALSE(fs::exists(o.run_dir));
  o.run_dir = disk / "run";
  o.paths.clear();
  expect_error(ErrorKind::disk, {"not enough disk space", "8.00 MiB is free"}, [&] { create(o, big); });
  EXPECT_TRUE(fs::is_empty(disk));
  umount2(disk.c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace sluice::offload::test
