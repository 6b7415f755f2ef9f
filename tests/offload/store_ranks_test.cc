// One store of several ranks: who writes what, who waits for whom, whose error is everybody's.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "ranks_fixture.h"
#include "store_faults.h"

namespace sluice::offload::test {
namespace {

using base::ErrorKind;

TEST_F(RanksStoreTest, CommitsOverRanksAndIsReadAsOne) {
  for (const int world : {1, 2, 3, 5})
    for (const bool freeze : {false, true}) {
      SCOPED_TRACE(world);
      StoreOptions o = options();
      o.run_dir /= std::to_string(world) + (freeze ? "f" : "");
      const Layout l = layout_of(world, {.rows = 1500, .freeze_norm = freeze, .freeze_embedding = freeze});
      expect_no_errors(on_ranks(world, [&](Ranks& ranks) {
        auto store = create(o, l, ranks);
        expect_state(*store, 0, meta_of(0), 0, ranks.rank());
        for (uint64_t step = 1; step <= 3; ++step) train_step(*store, l, step, 0, ranks);
        store->begin_writes();
        write_extents(*store, l, 4, 0, ranks);
        store->skip(meta_of(4));
        store->close(meta_of(4));
        store.reset();
        OpenReport report;
        store = Store::open(o, l, &report, ranks);
        EXPECT_TRUE(report.notes.empty());
        EXPECT_EQ(report.meta, meta_of(4));
        expect_state(*store, 3, meta_of(4), 0, ranks.rank());
        train_step(*store, l, 5, 0, ranks);
        EXPECT_EQ(store->generation(), 6u);
      }));
      const auto store = Store::open_read_only(o.run_dir, layout_of(1, {.rows = 1500, .freeze_norm = freeze, .freeze_embedding = freeze}), nullptr);
      EXPECT_EQ(store->layout().world(), l.world());
      expect_step(*store, 5);
    }
}

TEST_F(RanksStoreTest, ARankHasItsOwnFilesAndOnlyThose) {
  const Layout l = layout_of(3);
  make(options(), l, 1);
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(store_dir())) names.insert(entry.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"SUPER", "layout.json", "holder", "r000.d0.s0", "r000.d0.s1", "r001.d0.s0", "r001.d0.s1",
                                          "r002.d0.s0", "r002.d0.s1"}));
  expect_no_errors(on_ranks(3, [&](Ranks& ranks) {
    const auto store = Store::open(options(), l, nullptr, ranks);
    EXPECT_EQ(store->files().size(), 2u);
    store->begin_writes();
    for (uint32_t i = 0; i < l.tiles().size(); ++i) {
      if (is_own(l.tiles()[i], ranks)) {
        EXPECT_EQ(store->extent(0, i, Part::state).file->path(), file(ranks.rank(), 0));
        continue;
      }
      expect_error(ErrorKind::bug, {"of rank " + std::to_string(l.tiles()[i].shard)}, [&] { store->extent(0, i, Part::weights); });
      expect_error(ErrorKind::bug, {"of rank"}, [&] { store->set_hash(i, Part::weights, 1); });
      expect_error(ErrorKind::bug, {"of rank"}, [&] { store->hash(store->published(), i, Part::weights); });
    }
  }));
}

TEST_F(RanksStoreTest, MoreRanksThanTiles) {
  const Layout l = layout_of(40, {.rows = 20});
  make(options(), l, 2);
  expect_no_errors(open_all(options(), l));
  expect_step(*Store::open_read_only(options().run_dir, layout_of(1, {.rows = 20}), nullptr), 2);
}

TEST_F(RanksStoreTest, ARankThatCannotPrepareKeepsAllFromPublishing) {
  for (const int bad : {0, 1, 2})
    for (const std::string point : {"commit.begin", "commit.table", "commit.prepared"}) {
      SCOPED_TRACE(point + " of rank " + std::to_string(bad));
      const Layout l = layout_of(3);
      std::atomic<bool> armed{false};
      const auto errors = on_ranks(3, [&](Ranks& ranks) {
        const auto store = create(with_failpoint(options(), [&](int rank, std::string_view name) {
          if (armed && rank == bad && name == point) base::fail(ErrorKind::disk, "the drive is gone");
        }, ranks), l, ranks);
        train_step(*store, l, 1, 0, ranks);
        armed = true;
        try {
          train_step(*store, l, 2, 0, ranks);
        } catch (...) {
          for (int i = 0; i < 2; ++i) expect_error(ErrorKind::disk, {"earlier change"}, [&] { store->begin_writes(); });
          throw;
        }
      });
      for (int r = 0; r < 3; ++r)
        EXPECT_EQ(error_text(errors[static_cast<size_t>(r)]),
                  r == bad ? "7: the drive is gone" : "9: rank " + std::to_string(bad) + " failed: the drive is gone");
      expect_step(*read_all(options()), 1);
      expect_no_errors(on_ranks(3, [&](Ranks& ranks) { train_step(*Store::open(options(), l, nullptr, ranks), l, 2, 1, ranks); }));
      expect_state(*read_all(options()), 2, meta_of(2), 1);
      fs::remove_all(options().run_dir);
    }
}

TEST_F(RanksStoreTest, WhenTheRecordCannotBeWrittenAllRanksStop) {
  const Layout l = layout_of(2);
  std::atomic<bool> armed{false};
  const auto errors = on_ranks(2, [&](Ranks& ranks) {
    const auto store = create(with_failpoint(options(), [&](int, std::string_view name) {
      if (armed && name == "commit.record") base::fail(ErrorKind::disk, "no record");
    }, ranks), l, ranks);
    train_step(*store, l, 1, 0, ranks);
    armed = true;
    train_step(*store, l, 2, 0, ranks);
  });
  EXPECT_EQ(error_text(errors[0]), "7: no record");
  EXPECT_EQ(error_text(errors[1]), "9: rank 0 failed: no record");
}

TEST_F(RanksStoreTest, RanksAtDifferentStepsDoNotCommit) {
  const Layout l = layout_of(2);
  const auto commit = [&](const std::function<void(Store&, Ranks&)>& last) {
    const auto errors = on_ranks(2, [&](Ranks& ranks) {
      const auto store = create(options(), l, ranks);
      train_step(*store, l, 1, 0, ranks);
      store->begin_writes();
      write_extents(*store, l, 2, 0, ranks);
      last(*store, ranks);
    });
    for (const auto& error : errors) EXPECT_TRUE(error_text(error).starts_with("1: ")) << error_text(error);
    expect_step(*read_all(options()), 1);
    fs::remove_all(options().run_dir);
  };
  commit([](Store& store, Ranks& ranks) {
    store.prepare(meta_of(2 + static_cast<uint64_t>(ranks.rank())));
    store.publish();
  });
  commit([](Store& store, Ranks& ranks) {
    if (ranks.rank() == 0) return store.skip(meta_of(2));
    store.prepare(meta_of(2));
    store.publish();
  });
}

TEST_F(RanksStoreTest, DamageInTheFilesOfAnyRankRefusesAll) {
  const Layout l = layout_of(3);
  make(options(), l);  // step 2 in slot 0
  const auto refused = [&](int rank, const std::vector<std::string>& words) {
    const auto before = snapshot(scratch.path());
    const auto errors = open_all(options(), l);
    for (int r = 0; r < 3; ++r) {
      const std::string text = error_text(errors[static_cast<size_t>(r)]);
      EXPECT_TRUE(text.starts_with(r == rank || rank < 0 ? "7: " : "9: rank " + std::to_string(rank) + " failed: ")) << text;
      for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
    }
    EXPECT_TRUE(snapshot(scratch.path()) == before);
    for (const std::string& word : words) expect_error(ErrorKind::disk, {word}, [&] { read_all(options()); });
  };
  flip_byte(file(2, 0), 60);
  refused(2, {"r002.d0.s0", "header is damaged"});
  flip_byte(file(2, 0), 60);
  flip_byte(file(1, 0), kTableAt);
  refused(1, {"r001.d0.s0", "table"});
  flip_byte(file(1, 0), kTableAt);
  fs::rename(file(1, 1), scratch.path() / "away");
  refused(1, {"r001.d0.s1", "missing"});
  fs::rename(scratch.path() / "away", file(1, 1));

  // The whole file is of another step of the same store, though its header says the right generation: only the root tells.
  SlotHeader header;
  ASSERT_EQ(decode_header(read_page(file(1, 0), 0), &header), PageState::valid);
  const uint64_t generation = header.gen;
  fs::copy_file(file(1, 1), file(1, 0), fs::copy_options::overwrite_existing);
  ASSERT_EQ(decode_header(read_page(file(1, 0), 0), &header), PageState::valid);
  header.slot = 0;
  header.gen = generation;
  write_page(file(1, 0), 0, encode_header(header));
  refused(-1, {"not the one that was published", "3 files"});
}

TEST_F(RanksStoreTest, BitsOfEveryRankAreVerified) {
  const Layout l = layout_of(2);
  make(options(), l);
  StoreOptions o = options();
  o.verify_on_open = true;
  flip_byte(file(1, 0), kDataAlign + 5);
  const auto errors = open_all(o, l);
  EXPECT_TRUE(error_text(errors[0]).starts_with("9: rank 1 failed: ")) << error_text(errors[0]);
  EXPECT_NE(error_text(errors[1]).find("r001.d0.s0"), std::string::npos) << error_text(errors[1]);
  flip_byte(file(1, 0), kDataAlign + 5);

  // One machine of several was started again: all files are verified.
  for (const int restarted : {0, 1}) {
    const Page old = read_page(file(restarted, 0), 0);
    SlotHeader header;
    ASSERT_EQ(decode_header(old, &header), PageState::valid);
    header.boot_id = "other";
    write_page(file(restarted, 0), 0, encode_header(header));
    const int damaged = 1 - restarted;
    flip_byte(file(damaged, 0), kDataAlign + 5);
    EXPECT_NE(error_text(open_all(options(), l)[static_cast<size_t>(damaged)]).find(file(damaged, 0)), std::string::npos);
    flip_byte(file(damaged, 0), kDataAlign + 5);
    write_page(file(restarted, 0), 0, old);
  }
}

TEST_F(RanksStoreTest, RanksMustWantTheSame) {
  const auto errors = on_ranks(2, [&](Ranks& ranks) {
    StoreOptions o = options();
    if (ranks.rank() == 1) o.model_digest = "d2";
    create(o, layout_of(2), ranks);
  });
  for (const auto& error : errors) {
    EXPECT_TRUE(error_text(error).starts_with("2: rank 1 was started with another config")) << error_text(error);
  }
  EXPECT_FALSE(fs::exists(options().run_dir));
  for (const auto& error : on_ranks(2, [&](Ranks& ranks) { create(options(), layout_of(3), ranks); }))
    EXPECT_NE(error_text(error).find("another number of ranks"), std::string::npos);
}

TEST_F(RanksStoreTest, RecordAndLayoutMustAgreeOnTheNumberOfRanks) {
  const Layout l = layout_of(2);
  make(options(), l);
  Record record;
  ASSERT_EQ(decode_record(read_page(super(), record_offset(3)), &record), PageState::valid);
  EXPECT_EQ(record.world, 2u);
  record.world = 3;
  write_page(super(), record_offset(3), encode_record(record));
  for (const auto& error : open_all(options(), l)) EXPECT_NE(error_text(error).find("disagree"), std::string::npos);
}

// Whatever the last job left in the caches of any machine.
TEST_F(RanksStoreTest, EveryRankFlushesItsFilesWhenItOpens) {
  const Layout l = layout_of(2);
  const StoreOptions o = on_drives(2);
  make(o, l);
  std::vector<ChangeLog> logs(2);
  expect_no_errors(on_ranks(2, [&](Ranks& ranks) {
    StoreOptions own = o;
    own.observer = &logs[static_cast<size_t>(ranks.rank())];
    Store::open(own, l, nullptr, ranks);
  }));
  EXPECT_EQ(logs[0].lines, (std::vector<std::string>{"write SUPER", "sync SUPER", "sync r000.d0.s0", "sync r000.d0.s1", "sync r000.d1.s0",
                                                     "sync r000.d1.s1", "sync folder run"}));
  EXPECT_EQ(logs[1].lines, (std::vector<std::string>{"sync r001.d0.s0", "sync r001.d0.s1", "sync r001.d1.s0", "sync r001.d1.s1"}));
}

// A rank of the last job still holds its file, and may still be publishing: the record is read only after all locks are held.
TEST_F(RanksStoreTest, NobodyGoesOnBeforeAllLocksAreHeld) {
  const Layout l = layout_of(2);
  make(options(), l);
  StoreOptions o = options();
  o.lock_seconds = 20;
  auto held = std::make_unique<io::File>(io::File::open(file(1, 1), io::OpenMode::read_write));
  ASSERT_TRUE(held->try_lock(io::LockMode::exclusive));
  std::thread last_job([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    Record record;
    ASSERT_EQ(decode_record(read_page(super(), record_offset(3)), &record), PageState::valid);
    ++record.seq;
    record.meta = meta_of(3);
    write_page(super(), record_offset(record.seq), encode_record(record));
    held.reset();
  });
  expect_no_errors(on_ranks(2, [&](Ranks& ranks) {
    const auto store = Store::open(o, l, nullptr, ranks);
    EXPECT_EQ(store->meta(), meta_of(3));
  }));
  last_job.join();
}

TEST_F(RanksStoreTest, EveryFileOfEveryRankIsLocked) {
  const Layout l = layout_of(2);
  make(options(), l, 1);
  for (const int rank : {0, 1})
    for (const int slot : {0, 1}) {
      const io::File held = io::File::open(file(rank, slot), io::OpenMode::read_write);
      ASSERT_TRUE(held.try_lock(io::LockMode::shared));
      for (const auto& error : open_all(options(), l))
        EXPECT_NE(error_text(error).find(file(rank, slot).filename()), std::string::npos) << error_text(error);
    }
  // A job of fewer ranks locks them too.
  const io::File held = io::File::open(file(1, 1), io::OpenMode::read_write);
  ASSERT_TRUE(held.try_lock(io::LockMode::shared));
  expect_error(ErrorKind::disk, {"r001.d0.s1"}, [&] { Store::open(options(), layout_of(1), nullptr); });
}

TEST_F(RanksStoreTest, AFailedCreationOfOneRankLeavesNothing) {
  const Layout l = layout_of(3);
  const StoreOptions o = on_drives(2);
  const auto before = snapshot(scratch.path());
  const auto errors = on_ranks(3, [&](Ranks& ranks) {
    Store::create(o, l, meta_of(0), [&](const Tile&, std::span<std::byte>, std::span<std::byte>) {
      if (ranks.rank() == 2) base::fail(ErrorKind::model, "shard 2 is torn");
    }, ranks);
  });
  EXPECT_EQ(error_text(errors[2]), "4: shard 2 is torn");
  EXPECT_EQ(error_text(errors[0]), "9: rank 2 failed: shard 2 is torn");
  EXPECT_TRUE(snapshot(scratch.path()) == before);
}

// A rank that dies cannot agree to anything. What it leaves is cleared by the next creation.
TEST_F(RanksStoreTest, ACreationAfterOneThatLostARank) {
  const Layout l = layout_of(3);
  const StoreOptions o = on_drives(2);
  std::mutex mutex;
  const auto errors = on_ranks(3, [&](Ranks& ranks) {
    class Dying final : public Ranks {
     public:
      explicit Dying(Ranks& inner) : inner_(inner) {}
      int rank() const override { return inner_.rank(); }
      int world() const override { return inner_.world(); }
      std::vector<Bytes> gather(std::span<const std::byte> bytes, double seconds) override {
        if (rank() == 1 && dead) throw std::runtime_error("dead");
        return inner_.gather(bytes, seconds);
      }
      bool dead = false;

     private:
      Ranks& inner_;
    } dying(ranks);
    Store::create(o, l, meta_of(0), [&](const Tile&, std::span<std::byte>, std::span<std::byte>) { dying.dead = true; }, dying);
  });
  for (const auto& error : errors) EXPECT_NE(error_text(error), "");
  EXPECT_FALSE(Store::exists(o.run_dir));
  make(o, l);
  expect_step(*read_all(o), 2);
  for (const fs::path& path : o.paths) EXPECT_EQ(std::distance(fs::directory_iterator(path), {}), 1);
}

TEST_F(RanksStoreTest, WithOneSlotTheMarkOfAnyRankRefusesTheStore) {
  StoreOptions o = options();
  o.durable = Durable::none;
  const Layout l = layout_of(3);
  for (const int writer : {0, 1, 2}) {
    make(o, l, 0);
    expect_no_errors(on_ranks(3, [&](Ranks& ranks) {
      const auto store = Store::open(o, l, nullptr, ranks);
      if (ranks.rank() == writer) store->begin_writes();
    }));
    for (const auto& error : open_all(o, l)) EXPECT_NE(error_text(error).find("durable: none"), std::string::npos) << error_text(error);
    fs::remove_all(o.run_dir);
  }
  // A clean exit takes the marks back, also when only some ranks had anything to write.
  for (const int writers : {1, 2, 3}) {
    make(o, l, 0);
    expect_no_errors(on_ranks(3, [&](Ranks& ranks) {
      const auto store = Store::open(o, l, nullptr, ranks);
      if (ranks.rank() >= 3 - writers) {
        store->begin_writes();
        write_extents(*store, l, 0, 0, ranks);
      }
      store->close(meta_of(1));
    }));
    expect_no_errors(on_ranks(3, [&](Ranks& ranks) {
      const auto store = Store::open(o, l, nullptr, ranks);
      expect_state(*store, 0, meta_of(1), 0, ranks.rank());
      store->close(meta_of(2));  // only a skipped step
    }));
    expect_state(*read_all(o), 0, meta_of(2));
    fs::remove_all(o.run_dir);
  }
}

TEST_F(RanksStoreTest, ALinkedTargetOfAnyRankIsNeverWritten) {
  const Layout l = layout_of(2);
  make(options(), l);
  fs::create_hard_link(file(1, 1), scratch.path() / "copy");
  const auto errors = on_ranks(2, [&](Ranks& ranks) { train_step(*Store::open(options(), l, nullptr, ranks), l, 3, 0, ranks); });
  EXPECT_NE(error_text(errors[1]).find("2 names"), std::string::npos);
  EXPECT_TRUE(error_text(errors[0]).starts_with("9: ")) << error_text(errors[0]);
  expect_step(*read_all(options()), 2);
}

TEST_F(RanksStoreTest, ReadersNeedTheFilesOfAllRanks) {
  make(options(), layout_of(3));
  expect_step(*read_all(options()), 2);
  fs::rename(file(2, 0), scratch.path() / "away");
  expect_error(ErrorKind::disk, {"r002.d0.s0", "missing"}, [&] { read_all(options()); });
}

}  // namespace
}  // namespace sluice::offload::test
