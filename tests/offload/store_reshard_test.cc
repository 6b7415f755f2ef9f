// A store of another number of ranks, another tile, other drives or slots is rewritten when it is opened: bit for bit, and whole
// whatever happens meanwhile.
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <fstream>
#include <random>

#include "io/power_cut.h"
#include "offload/store_failpoint.h"
#include "store_faults.h"
#include "store_fixture.h"

namespace sluice::offload::test {
namespace {

using base::ErrorKind;

// What a run asks of its store.
struct Shape {
  int world = 1;
  uint64_t tile = kLeafElements;
  int drives = 0;  // 0: in RUN/store
  Durable durable = Durable::step;
};

class ReshardTest : public StoreTest {
 protected:
  static constexpr ModelOptions kModel{.rows = 1500, .freeze_norm = true, .freeze_embedding = false};

  static Layout layout_of(const Shape& shape, Schema schema = Schema::bf16, const ModelOptions& model = kModel) {
    return {small_model(model), schema, shape.tile, static_cast<uint32_t>(shape.world)};
  }
  // root: of everything, RUN and the drives.
  StoreOptions options_of(const Shape& shape, const fs::path& root) const {
    StoreOptions o = options();
    o.run_dir = root / "run";
    o.durable = shape.durable;
    for (int d = 0; d < shape.drives; ++d) {
      o.paths.push_back(root / ("nvme" + std::to_string(d)));
      fs::create_directories(o.paths.back());
    }
    return o;
  }
  StoreOptions options_of(const Shape& shape) const { return options_of(shape, scratch.path()); }

  void make(const Shape& shape, uint64_t steps) const {
    const Layout l = layout_of(shape);
    expect_no_errors(on_ranks(shape.world, [&](Ranks& ranks) {
      const auto store = create(options_of(shape), l, ranks);
      for (uint64_t step = 1; step <= steps; ++step) train_step(*store, l, step, 0, ranks);
    }));
  }
  // Opens in this shape; every rank's part must be that step's. Returns what the user is told.
  std::vector<std::string> open_as(const Shape& shape, const StoreOptions& o, uint64_t step, uint64_t version = 0,
                                   const ModelOptions& model = kModel) const {
    const Layout l = layout_of(shape, Schema::bf16, model);
    std::vector<std::string> notes;
    expect_no_errors(on_ranks(shape.world, [&](Ranks& ranks) {
      OpenReport report;
      const auto store = Store::open(o, l, &report, ranks);
      expect_state(*store, step, meta_of(step), version, ranks.rank());
      if (ranks.rank() == 0)
        notes = report.notes;
      else
        EXPECT_TRUE(report.notes.empty());
    }));
    return notes;
  }
  std::vector<std::string> open_as(const Shape& shape, uint64_t step) const { return open_as(shape, options_of(shape), step); }
  // No leftovers: only the files of a store of this shape.
  static void expect_only(const Shape& shape, const fs::path& root) {
    for (const char* gone : {"store.new", "store.tmp", "exchange-a", "exchange-b"}) EXPECT_FALSE(fs::exists(root / "run" / gone)) << gone;
    const size_t slots = shape.durable == Durable::none ? 1 : 2;
    size_t slot_files = 0, folders = 0;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      const std::string name = entry.path().filename();
      slot_files += name.starts_with("r0") && !name.ends_with(".base");
      folders += name.starts_with("sluice-");
    }
    EXPECT_EQ(slot_files, slots * static_cast<size_t>(shape.world * std::max(shape.drives, 1)));
    EXPECT_EQ(folders, static_cast<size_t>(shape.drives));
  }
  std::unique_ptr<Store> read(const StoreOptions& o) const {
    return Store::open_read_only(o.run_dir, layout_of({}), nullptr, o.paths);
  }
};

TEST_F(ReshardTest, FourOneThreeTwoFourKeepsEveryBit) {
  for (const bool drives : {false, true})
    for (const Schema schema : {Schema::bf16, Schema::fp32, Schema::fp16, Schema::bf16_lion}) {
      uint64_t step = 2;
      const auto shape_of = [&](int world) { return Shape{.world = world, .drives = drives ? 2 : 0}; };
      const StoreOptions o = options_of(shape_of(4));
      expect_no_errors(on_ranks(4, [&](Ranks& ranks) {
        const Layout l = layout_of(shape_of(4), schema);
        const auto store = create(o, l, ranks);
        for (uint64_t s = 1; s <= step; ++s) train_step(*store, l, s, 0, ranks);
      }));
      for (const int world : {1, 3, 2, 4, 5, 1}) {
        SCOPED_TRACE(world);
        const Layout l = layout_of(shape_of(world), schema);
        expect_no_errors(on_ranks(world, [&](Ranks& ranks) {
          OpenReport report;
          const auto store = Store::open(o, l, &report, ranks);
          EXPECT_EQ(store->generation(), 1u);
          expect_state(*store, step, meta_of(step), 0, ranks.rank());
          train_step(*store, l, step + 1, 0, ranks);  // and it goes on from there
          train_step(*store, l, step + 2, 0, ranks);
        }));
        step += 2;
        expect_only(shape_of(world), scratch.path());
        const auto store = Store::open_read_only(o.run_dir, layout_of(shape_of(1), schema), nullptr);
        EXPECT_EQ(store->layout().world(), static_cast<uint32_t>(world));
        expect_step(*store, step);
      }
      fs::remove_all(o.run_dir);
      for (const fs::path& path : o.paths) fs::remove_all(path);
    }
}

// From the state of a new store, where m and v were never written, and after a skip.
TEST_F(ReshardTest, FromTheFirstStepAndAfterASkip) {
  make({.world = 2}, 0);
  open_as({.world = 3}, 0);
  const Layout l = layout_of({.world = 3});
  expect_no_errors(on_ranks(3, [&](Ranks& ranks) {
    const auto store = Store::open(options(), l, nullptr, ranks);
    train_step(*store, l, 1, 0, ranks);
    store->skip(meta_of(2));
  }));
  const auto store = Store::open(options(), layout_of({}), nullptr);
  expect_state(*store, 1, meta_of(2));
}

TEST_F(ReshardTest, TileDrivesAndSlotsChangeToo) {
  Shape shape{.world = 2};
  make(shape, 3);
  const auto change = [&](Shape to, const std::vector<std::string>& words) {
    const std::vector<std::string> notes = open_as(to, 3);
    ASSERT_EQ(notes.size(), 1u);
    for (const std::string& word : words) EXPECT_NE(notes[0].find(word), std::string::npos) << notes[0];
    expect_only(to, scratch.path());
    EXPECT_TRUE(open_as(to, 3).empty());  // once is enough
  };
  change({.world = 2, .tile = 2 * kLeafElements}, {"storage.tile 65536 -> 131072", "so are all later bits"});
  change({.world = 2, .tile = 2 * kLeafElements, .drives = 1}, {"slot files", (scratch.path() / "run/store").string(), "nvme0"});
  change({.world = 2, .drives = 3}, {"storage.tile 131072 -> 65536", "nvme2"});
  change({.world = 2, .drives = 2}, {"nvme2"});
  change({.world = 2, .drives = 2, .durable = Durable::none}, {"slots 2 -> 1"});
  change({.world = 1, .drives = 0, .durable = Durable::checkpoint}, {"ranks 2 -> 1", "slots 1 -> 2", "later bits differ"});
}

TEST_F(ReshardTest, ToAnotherDriveThatIsNamedInstead) {
  Shape shape{.world = 2, .drives = 1};
  make(shape, 1);
  StoreOptions o = options_of(shape);
  o.paths = {scratch.path() / "larger"};
  fs::create_directory(o.paths[0]);
  open_as(shape, o, 1);
  EXPECT_TRUE(fs::is_empty(scratch.path() / "nvme0"));
  EXPECT_FALSE(fs::is_empty(o.paths[0]));
  o.paths[0] = scratch.path() / "none";
  for (const auto& error : on_ranks(2, [&](Ranks& ranks) { Store::open(o, layout_of(shape), nullptr, ranks); }))
    EXPECT_NE(error_text(error).find("no folder"), std::string::npos) << error_text(error);
}

TEST_F(ReshardTest, DamageIsFoundBeforeAnythingIsReplaced) {
  make({.world = 3, .drives = 1}, 2);  // step 2 in slot 0
  const StoreOptions o = options_of({.world = 2, .drives = 1});
  const fs::path data = fs::directory_iterator(o.paths[0])->path();
  for (const std::string file : {"r000.d0.s0", "r001.d0.s0", "r002.d0.s0", "r000.d0.base"}) {
    flip_byte(data / file, kDataAlign + 100);
    const auto errors = on_ranks(2, [&](Ranks& ranks) { Store::open(o, layout_of({.world = 2}), nullptr, ranks); });
    std::string all;
    for (const auto& error : errors) all += error_text(error) + "\n";
    EXPECT_NE(all.find("7: " + (data / file).string()), std::string::npos) << all;
    EXPECT_NE(all.find("is damaged"), std::string::npos) << all;
    flip_byte(data / file, kDataAlign + 100);
    expect_only({.world = 3, .drives = 1}, scratch.path());
  }
  open_as({.world = 3, .drives = 1}, 2);
}

// What a rank reads of another rank's file is what that rank has checked, not another step under the same name.
TEST_F(ReshardTest, AFileThatIsAnotherOneThanWasCheckedIsRefused) {
  make({.world = 2}, 2);  // step 2 in slot 0
  const fs::path file = store_dir() / "r001.d0.s0";
  StoreOptions o = options();
  o.failpoint = [&](std::string_view name) {
    if (name != "reshard.layout") return;
    SlotHeader header;
    ASSERT_EQ(decode_header(read_page(file, 0), &header), PageState::valid);
    const uint64_t generation = header.gen;
    fs::copy_file(store_dir() / "r001.d0.s1", file, fs::copy_options::overwrite_existing);
    ASSERT_EQ(decode_header(read_page(file, 0), &header), PageState::valid);
    header.slot = 0;
    header.gen = generation;
    write_page(file, 0, encode_header(header));
  };
  expect_error(ErrorKind::disk, {file.string(), "not the one that was published"}, [&] { Store::open(o, layout_of({}), nullptr); });
}

TEST_F(ReshardTest, AFileThatIsNotSeenHereIsNamed) {
  make({.world = 3}, 2);
  fs::rename(store_dir() / "r002.d0.s0", scratch.path() / "away");
  for (const auto& error : on_ranks(2, [&](Ranks& ranks) { Store::open(options(), layout_of({.world = 2}), nullptr, ranks); }))
    EXPECT_NE(error_text(error).find("r002.d0.s0 is missing"), std::string::npos) << error_text(error);
  fs::rename(scratch.path() / "away", store_dir() / "r002.d0.s0");
  open_as({.world = 2}, 2);
}

// Links that a checkpoint would hold are not the old store's to delete.
TEST_F(ReshardTest, OtherFilesInADataFolderStay) {
  make({.world = 1, .drives = 1}, 2);
  const StoreOptions o = options_of({.world = 2, .drives = 1});
  const fs::path data = fs::directory_iterator(o.paths[0])->path();
  fs::create_directory(data / "step-2.3");
  fs::create_hard_link(data / "r000.d0.s0", data / "step-2.3/r000.d0.s0");
  open_as({.world = 2, .drives = 1}, 2);
  EXPECT_FALSE(fs::exists(data / "r000.d0.s0"));
  EXPECT_TRUE(fs::exists(data / "step-2.3/r000.d0.s0"));
}

// A copy of the store under the name of a leftover has the same uuid: its data are the store's.
TEST_F(ReshardTest, LeftoversNeverTakeTheFilesOfTheStoreItself) {
  make({.world = 2, .drives = 1}, 2);
  for (const char* name : {"store.new", "store.tmp"})
    fs::copy(store_dir(), options().run_dir / name, fs::copy_options::recursive);
  EXPECT_EQ(open_as({.world = 2, .drives = 1}, 2).size(), 2u);
  expect_only({.world = 2, .drives = 1}, scratch.path());
}

TEST_F(ReshardTest, AFullDiskLeavesTheOldStore) {
  const fs::path disk = scratch.path() / "disk";
  fs::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=24m") != 0) GTEST_SKIP() << "cannot mount a small disk here";
  {
    const Shape shape{.world = 2};
    StoreOptions o = options_of(shape, disk);
    expect_no_errors(on_ranks(2, [&](Ranks& ranks) { create(o, layout_of(shape), ranks); }));
    const auto before = snapshot(disk);
    const auto errors = on_ranks(3, [&](Ranks& ranks) { Store::open(o, layout_of({.world = 3}), nullptr, ranks); });
    for (const auto& error : errors) EXPECT_NE(error_text(error).find("not enough disk space"), std::string::npos) << error_text(error);
    EXPECT_TRUE(snapshot(disk) == before);
    open_as(shape, o, 0);
  }
  umount2(disk.c_str(), MNT_DETACH);
}

// The new store is locked before it gets its name.
TEST_F(ReshardTest, NobodyElseGetsTheNewStore) {
  make({.world = 1}, 1);
  StoreOptions o = options();
  int tried = 0;
  o.failpoint = [&](std::string_view name) {
    if (!name.starts_with("reshard.exchanged") && name != "reshard.done" && name != "open.done") return;
    ++tried;
    expect_error(ErrorKind::disk, {"in use"}, [&] { Store::open_read_only(options().run_dir, layout_of({}), nullptr); });
  };
  const auto store = Store::open(o, layout_of({.tile = 2 * kLeafElements}), nullptr);
  EXPECT_EQ(tried, 3);
  expect_step(*store, 1);
  EXPECT_EQ(store->extent(0, 0, Part::weights).file->path(), slot_file(0));  // under its name, not the old one
}

class ReshardFaults : public ReshardTest, public ::testing::WithParamInterface<std::pair<Shape, Shape>> {
 protected:
  Shape from() const { return GetParam().first; }
  Shape to() const { return GetParam().second; }
  int widest() const { return std::max(from().world, to().world); }
  // The old world or the new one, and nothing else left behind; both can be opened, and go on.
  void expect_whole(const StoreOptions& wanted, bool as_old, const fs::path& root) const {
    const Shape shape = as_old ? from() : to();
    const StoreOptions o = as_old ? options_of(from(), root) : wanted;
    const Layout l = layout_of(shape);
    expect_no_errors(on_ranks(shape.world, [&](Ranks& ranks) {
      const auto store = Store::open(o, l, nullptr, ranks);
      expect_state(*store, 2, meta_of(2), 0, ranks.rank());
      train_step(*store, l, 3, 0, ranks);
    }));
    expect_only(shape, root);
    const auto store = Store::open_read_only(o.run_dir, layout_of({}), nullptr, o.paths);
    expect_step(*store, 3);
  }
  void clear() const {
    for (const auto& entry : fs::directory_iterator(scratch.path())) fs::remove_all(entry.path());
  }
};

TEST_P(ReshardFaults, KilledAtEveryPoint) {
  std::vector<std::vector<std::string>> passed(static_cast<size_t>(to().world));
  make(from(), 2);
  expect_no_errors(on_ranks(to().world, [&](Ranks& ranks) {
    StoreOptions o = with_failpoint(options_of(to()), [&](int rank, std::string_view name) {
      passed[static_cast<size_t>(rank)].emplace_back(name);
    }, ranks);
    Store::open(o, layout_of(to()), nullptr, ranks);
  }));
  for (const std::string_view name : failpoint_names()) {
    const bool seen = std::find(passed[0].begin(), passed[0].end(), name) != passed[0].end();
    EXPECT_TRUE(seen || !name.starts_with("reshard.")) << name;
  }
  for (int rank = 0; rank < to().world; ++rank)
    for (size_t stop = 0; stop < passed[static_cast<size_t>(rank)].size(); ++stop) {
      clear();
      SCOPED_TRACE("rank " + std::to_string(rank) + " at " + passed[static_cast<size_t>(rank)][stop]);
      make(from(), 2);
      ASSERT_EQ(run_child([&] {
        on_ranks(to().world, [&](Ranks& ranks) {
          size_t seen = 0;
          StoreOptions o = with_failpoint(options_of(to()), [&](int, std::string_view) {
            if (ranks.rank() == rank && seen++ == stop) _exit(kKilled);
          }, ranks);
          Store::open(o, layout_of(to()), nullptr, ranks);
        });
      }), kKilled);
      expect_whole(options_of(to()), stop % 2 == 0, scratch.path());
    }
}

TEST_P(ReshardFaults, OneRankFailsAtEveryPoint) {
  for (int bad = 0; bad < to().world; ++bad)
    for (size_t stop = 0;; ++stop) {
      clear();
      SCOPED_TRACE("rank " + std::to_string(bad) + ", point " + std::to_string(stop));
      make(from(), 2);
      bool reached = false;
      const auto errors = on_ranks(to().world, [&](Ranks& ranks) {
        size_t seen = 0;
        StoreOptions o = with_failpoint(options_of(to()), [&](int rank, std::string_view) {
          if (rank != bad || seen++ != stop) return;
          reached = true;
          base::fail(ErrorKind::disk, "injected");
        }, ranks);
        Store::open(o, layout_of(to()), nullptr, ranks);
      });
      for (size_t r = 0; r < errors.size(); ++r)
        EXPECT_EQ(error_text(errors[r]),
                  !reached ? "" : static_cast<int>(r) == bad ? "7: injected" : "9: rank " + std::to_string(bad) + " failed: injected");
      expect_whole(options_of(to()), stop % 2 == 1, scratch.path());
      if (!reached) break;
    }
}

TEST_P(ReshardFaults, EveryNthOperationOfOneRankFails) {
  for (int bad = 0; bad < to().world; ++bad)
    for (size_t n = 1;; ++n) {
      clear();
      SCOPED_TRACE("rank " + std::to_string(bad) + ", operation " + std::to_string(n));
      make(from(), 2);
      FailNth faults(n);
      const auto errors = on_ranks(to().world, [&](Ranks& ranks) {
        StoreOptions o = options_of(to());
        if (ranks.rank() == bad) o.observer = &faults;
        Store::open(o, layout_of(to()), nullptr, ranks);
      });
      for (const auto& error : errors) {
        const std::string text = error_text(error);
        EXPECT_TRUE(faults.fired() ? text.find("injected failure") != std::string::npos : text.empty()) << text;
      }
      expect_whole(options_of(to()), n % 2 == 1, scratch.path());
      if (!faults.fired()) break;
    }
}

// What a cut may leave: the old store or the new one, both at the step that was reported before.
class ReshardPowerCut : public ReshardFaults {
 protected:
  // In the folder of the recorded run: layout.json has absolute paths.
  void check(const io::PowerCutRecorder& recorder, size_t cut, uint64_t seed) const {
    SCOPED_TRACE("cut " + recorder.describe(cut) + ", seed " + std::to_string(seed));
    recorder.materialise(cut, seed, scratch.path());
    ASSERT_TRUE(Store::exists(options().run_dir));
    expect_whole(options_of(to()), seed % 2 == 0, scratch.path());
  }
  void record(io::PowerCutRecorder& recorder) const {
    expect_no_errors(on_ranks(to().world, [&](Ranks& ranks) {
      StoreOptions o = options_of(to());
      o.observer = &recorder;
      Store::open(o, layout_of(to()), nullptr, ranks);
    }));
  }
};

TEST_P(ReshardPowerCut, SomeMomentsBySeed) {
  make(from(), 2);
  options_of(to());  // the drives are there before
  io::PowerCutRecorder recorder(scratch.path());
  record(recorder);
  std::mt19937_64 random(20250101);
  for (int i = 0; i < 50; ++i) check(recorder, random() % (recorder.events() + 1), random() % 8);
}

TEST_P(ReshardPowerCut, SlowEveryMoment) {
  make(from(), 2);
  options_of(to());
  io::PowerCutRecorder recorder(scratch.path());
  record(recorder);
  for (size_t cut = 0; cut <= recorder.events(); ++cut)
    for (uint64_t seed = 0; seed < 6; ++seed) check(recorder, cut, seed);
}

using Changes = std::vector<std::pair<Shape, Shape>>;
const Changes kFaults = {{{.world = 2}, {.world = 1}}, {{.world = 2, .drives = 2}, {.world = 3, .drives = 1}}};
const Changes kMoreFaults = {{{.world = 1}, {.world = 2, .tile = 2 * kLeafElements}}, {{.world = 2, .drives = 1}, {.world = 2}}};
const Changes kCuts = {{{.world = 2}, {.world = 1}}, {{.world = 1, .drives = 1}, {.world = 2, .tile = 2 * kLeafElements, .drives = 2}}};
const auto name_of = [](const auto& info) {
  const auto text = [](const Shape& s) { return std::to_string(s.world) + "ranks" + std::to_string(s.drives) + "drives"; };
  return text(info.param.first) + "To" + text(info.param.second);
};
INSTANTIATE_TEST_SUITE_P(Worlds, ReshardFaults, ::testing::ValuesIn(kFaults), name_of);
INSTANTIATE_TEST_SUITE_P(SlowWorlds, ReshardFaults, ::testing::ValuesIn(kMoreFaults), name_of);
INSTANTIATE_TEST_SUITE_P(Worlds, ReshardPowerCut, ::testing::ValuesIn(kCuts), name_of);

}  // namespace
}  // namespace sluice::offload::test
