// Create, commit, skip and close, and what each leaves for the next open.
#include <gtest/gtest.h>

#include <fstream>

#include "store_fixture.h"

namespace sluice::offload::test {
namespace {

using base::ErrorKind;

TEST_F(StoreTest, CreateGivesStepZeroInEverySchema) {
  for (const Schema schema : {Schema::bf16, Schema::fp32, Schema::fp16, Schema::bf16_lion, Schema::fp32_lion, Schema::fp16_lion}) {
    StoreOptions o = options();
    o.run_dir /= to_string(schema);
    const Layout l = small_layout(schema, {.freeze_norm = true});
    EXPECT_FALSE(Store::exists(o.run_dir));
    {
      const auto store = create(o, l);
      expect_step(*store, 0);
      EXPECT_EQ(store->published(), 0);
      EXPECT_EQ(store->target(), 1);
      EXPECT_EQ(store->files().size(), 3u);  // two slots and the base of frozen tensors
    }
    EXPECT_TRUE(Store::exists(o.run_dir));
    expect_step(*Store::open(o, l, nullptr), 0);
    EXPECT_FALSE(fs::exists(o.run_dir / "store.tmp"));
  }
}

TEST_F(StoreTest, UnwrittenStateHashesLikeZeros) {
  const Layout l = small_layout(Schema::fp32);
  const auto store = create(options(), l);
  for (uint32_t i = 0; i < l.tiles().size(); ++i) {
    const Extent extent = store->extent(0, i, Part::state);
    EXPECT_EQ(store->hash(0, i, Part::state),
              hash_extent(Schema::fp32, Part::state, l.tiles()[i], std::vector<std::byte>(extent.bytes)));
  }
}

TEST_F(StoreTest, CommitsAlternateSlotsAndSurviveReopening) {
  auto store = create();
  for (uint64_t step = 1; step <= 5; ++step) {
    train_step(*store, layout, step);
    EXPECT_EQ(store->published(), static_cast<int>(step & 1));
    EXPECT_EQ(store->target(), static_cast<int>(1 - (step & 1)));
    expect_step(*store, step);
    if (step == 3) {
      store->close(meta_of(step));
      store.reset();
      OpenReport report;
      store = open(&report);
      EXPECT_EQ(report.meta, meta_of(step));
      EXPECT_TRUE(report.notes.empty());
      expect_step(*store, step);
    }
  }
  EXPECT_EQ(store->generation(), 6u);  // one publication a step, and the creation
}

TEST_F(StoreTest, FrozenTensorsAreInTheBaseFileOfEverySlot) {
  const Layout l = small_layout(Schema::bf16, {.freeze_embedding = true});
  const auto store = create(options(), l);
  train_step(*store, l, 1);
  expect_step(*store, 1);
  const Extent a = store->extent(0, 0, Part::weights), b = store->extent(1, 0, Part::weights);
  EXPECT_EQ(a.file, b.file);
  EXPECT_EQ(a.file->path().filename(), "r000.d0.base");
  EXPECT_EQ(a.offset, b.offset);
}

TEST_F(StoreTest, SkipKeepsTheBytesAndTheGeneration) {
  const auto store = create();
  train_step(*store, layout, 1);
  const uint64_t generation = store->generation();
  const int slot = store->published();
  StepMeta skipped = meta_of(2);
  skipped.skipped = 1;
  store->begin_writes();
  write_extents(*store, layout, 2);  // a guess that was wrong
  store->skip(skipped);
  EXPECT_EQ(store->generation(), generation);
  EXPECT_EQ(store->published(), slot);
  expect_state(*store, 1, skipped);
  // The guess's hashes no longer count.
  EXPECT_THROW(store->prepare(meta_of(3)), base::Error);
}

TEST_F(StoreTest, StepAfterASkipWritesTheSameTarget) {
  {
    const auto store = create();
    train_step(*store, layout, 1);
    store->skip(meta_of(2));
    train_step(*store, layout, 3);
    expect_step(*store, 3);
    EXPECT_EQ(store->published(), 0);
  }
  expect_step(*open(), 3);
}

TEST_F(StoreTest, WithoutACommitTheWritesAreGone) {
  {
    const auto store = create();
    train_step(*store, layout, 1);
    store->begin_writes();
    write_extents(*store, layout, 2);
    store->close(meta_of(1));
  }
  expect_step(*open(), 1);
}

TEST_F(StoreTest, ACommitOfNothingButSkippedStepsKeepsThePublishedSlot) {
  for (const Durable durable : {Durable::step, Durable::checkpoint}) {
    StoreOptions o = options();
    o.durable = durable;
    o.run_dir /= durable == Durable::step ? "step" : "checkpoint";
    {
      const auto store = create(o, layout);
      store->commit_unchanged(meta_of(2));
      EXPECT_EQ(store->published(), 0);
      expect_state(*store, 0, meta_of(2));
      train_step(*store, layout, 3);
      store->commit_unchanged(meta_of(4));
    }
    const auto store = Store::open(o, layout, nullptr);
    EXPECT_EQ(store->published(), 1);
    expect_state(*store, 3, meta_of(4));
  }
}

TEST_F(StoreTest, CheckpointModeWritesTheTargetOftenAndCommitsOnce) {
  StoreOptions o = options();
  o.durable = Durable::checkpoint;
  {
    const auto store = create(o, layout);
    for (uint64_t step = 1; step <= 3; ++step) {
      store->begin_writes();
      write_extents(*store, layout, step);
    }
    store->skip(meta_of(4));  // counted, not published: the published slot is of step 0
    EXPECT_EQ(store->meta(), meta_of(0));
    store->prepare(meta_of(4));
    store->publish();
    expect_state(*store, 3, meta_of(4));
  }
  expect_state(*open(), 3, meta_of(4));
}

TEST_F(StoreTest, PrepareWantsEveryHashAndTheRightOrder) {
  const auto store = create();
  EXPECT_THROW(store->publish(), base::Error);
  StoreOptions o = options();
  o.run_dir = scratch.path() / "second";
  const auto second = create(o, layout);
  // A hash of the generation after the one that is being committed would get into the wrong table.
  expect_error(ErrorKind::bug, {"before begin_writes"}, [&] { second->set_hash(0, Part::weights, 1); });
  second->begin_writes();
  const uint32_t last = static_cast<uint32_t>(layout.tiles().size()) - 1;
  for (uint32_t i = 0; i < last; ++i)
    for (const Part part : {Part::weights, Part::state}) second->set_hash(i, part, 1);
  second->set_hash(last, Part::weights, 1);
  EXPECT_THROW(second->hash(second->target(), last, Part::state), base::Error);
  expect_error(ErrorKind::bug, {"was not set"}, [&] { second->prepare(meta_of(1)); });
}

TEST_F(StoreTest, AfterAFailedChangeNothingMoreIsWritten) {
  bool fail_now = false;
  StoreOptions o = options();
  o.failpoint = [&](std::string_view name) {
    if (fail_now && name == "commit.table") throw base::Error(ErrorKind::disk, "injected");
  };
  {
    const auto store = create(o, layout);
    train_step(*store, layout, 1);
    fail_now = true;
    store->begin_writes();
    write_extents(*store, layout, 2);
    expect_error(ErrorKind::disk, {"injected"}, [&] { store->prepare(meta_of(2)); });
    for (int i = 0; i < 2; ++i)
      expect_error(ErrorKind::disk, {"earlier change"}, [&] { store->skip(meta_of(2)); });
    expect_error(ErrorKind::disk, {"earlier change"}, [&] { store->begin_writes(); });
    expect_error(ErrorKind::disk, {"earlier change"}, [&] { store->close(meta_of(2)); });
  }
  expect_step(*open(), 1);
}

TEST_F(StoreTest, ALinkedTargetIsNeverWritten) {
  const auto store = create();
  fs::create_hard_link(slot_file(1), scratch.path() / "copy");
  expect_error(ErrorKind::disk, {"r000.d0.s1", "2 names"}, [&] { store->begin_writes(); });
}

TEST_F(StoreTest, DurableNoneUsesOneSlotAndClearsTheMarkAtACleanExit) {
  StoreOptions o = options();
  o.durable = Durable::none;
  {
    const auto store = create(o, layout);
    EXPECT_FALSE(fs::exists(slot_file(1)));
    EXPECT_EQ(store->target(), store->published());
    for (uint64_t step = 1; step <= 3; ++step) {
      store->begin_writes();
      write_extents(*store, layout, step);
      store->skip(meta_of(step));
    }
    EXPECT_THROW(store->verify(), base::Error);
    store->close(meta_of(3));
  }
  {
    const auto store = Store::open(o, layout, nullptr);
    expect_step(*store, 3);
    store->close(meta_of(4));  // a step that was skipped: meta only
  }
  expect_state(*Store::open_read_only(o.run_dir, layout, nullptr), 3, meta_of(4));
}

TEST_F(StoreTest, DurableNoneIsRefusedAfterACrash) {
  StoreOptions o = options();
  o.durable = Durable::none;
  {
    const auto store = create(o, layout);
    store->begin_writes();
  }
  expect_error(ErrorKind::disk, {"durable: none", "step 0"}, [&] { Store::open(o, layout, nullptr); });
  expect_error(ErrorKind::disk, {"durable: none"},
               [&] { Store::open_read_only(o.run_dir, layout, nullptr); });
}

TEST_F(StoreTest, SlotFilesUnderAStoragePath) {
  StoreOptions o = options();
  o.paths = {scratch.path() / "nvme"};
  expect_error(ErrorKind::config, {"nvme", "no folder"}, [&] { create(o, layout); });
  EXPECT_FALSE(fs::exists(o.run_dir));
  fs::create_directory(o.paths[0]);
  { train_step(*create(o, layout), layout, 1); }
  EXPECT_FALSE(fs::exists(slot_file(0)));
  EXPECT_EQ(std::distance(fs::directory_iterator(o.paths[0]), {}), 1);
  expect_step(*Store::open(o, layout, nullptr), 1);
  expect_step(*Store::open_read_only(o.run_dir, layout, nullptr), 1);
  // Moved: found by its name.
  StoreOptions moved = o;
  moved.paths = {scratch.path() / "other"};
  fs::create_directory(moved.paths[0]);
  const fs::path data = fs::directory_iterator(o.paths[0])->path();
  fs::rename(data, moved.paths[0] / data.filename());
  {
    OpenReport report;
    expect_step(*Store::open(moved, layout, &report), 1);
    EXPECT_TRUE(report.notes.empty());
  }
  EXPECT_TRUE(fs::exists(moved.paths[0] / data.filename()));
  expect_step(*Store::open_read_only(o.run_dir, layout, nullptr, moved.paths), 1);
  expect_error(ErrorKind::disk, {"gone", data.string()},
               [&] { Store::open_read_only(o.run_dir, layout, nullptr); });
  expect_error(ErrorKind::disk, {"gone", data.string()}, [&] { Store::open(o, layout, nullptr); });
}

TEST_F(StoreTest, AnExistingStoreIsNotCreatedAgain) {
  { create(); }
  const auto before = snapshot(store_dir());
  expect_error(ErrorKind::config, {"already holds a store"}, [&] { create(); });
  EXPECT_TRUE(snapshot(store_dir()) == before);
}

TEST_F(StoreTest, CreationReportsItsProgress) {
  StoreOptions o = options();
  std::vector<std::pair<uint64_t, uint64_t>> calls;
  o.progress = [&](uint64_t done, uint64_t total) { calls.emplace_back(done, total); };
  create(o, layout);
  ASSERT_EQ(calls.size(), layout.tiles().size());
  EXPECT_EQ(calls.back().first, calls.back().second);
  EXPECT_LT(calls.front().first, calls.back().first);
}

}  // namespace
}  // namespace sluice::offload::test
