// A store on several drives: what lies where, and where it is found again.
#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "offload/store_shares.h"
#include "ranks_fixture.h"

namespace sluice::offload::test {
namespace {

using base::ErrorKind;

using DrivesTest = RanksStoreTest;

TEST_F(DrivesTest, ExtentsAreDealtOverDrivesEvenly) {
  const StoreOptions o = on_drives(3);
  for (const int world : {1, 2}) {
    const Layout l = layout_of(world, {.rows = 6000});
    make(o, l);
    const StoreGeometry geometry(l, {1, 1, 1});
    const auto store = Store::open_read_only(o.run_dir, layout_of(1, {.rows = 6000}), nullptr);
    expect_step(*store, 2);
    std::map<uint32_t, uint64_t> bytes;
    for (uint32_t i = 0; i < l.tiles().size(); ++i)
      for (const Part part : {Part::weights, Part::state}) {
        const Extent extent = store->extent(0, i, part);
        bytes[extent.drive] += extent.bytes;
        EXPECT_EQ(extent.file->path().parent_path().parent_path(), o.paths[extent.drive]);
        EXPECT_EQ(extent.file->path().filename(), slot_file_name(l.tiles()[i].shard, extent.drive, 0));
      }
    uint64_t largest = 0;
    for (const Tile& tile : l.tiles()) largest = std::max(largest, extent_bytes(l.schema(), Part::state, tile));
    for (const auto& [drive, sum] : bytes) EXPECT_LE(sum, bytes[0] + l.world() * largest) << drive;
    for (const auto& [drive, sum] : bytes) EXPECT_GE(sum + l.world() * largest, bytes[0]) << drive;
    fs::remove_all(o.run_dir);
    for (const fs::path& path : o.paths) fs::remove_all(path), fs::create_directory(path);
  }
}

TEST_F(DrivesTest, SharesOfDrivesAreKeptInProportion) {
  const Layout l = layout_of(1, {.rows = 60000});
  const StoreGeometry geometry(l, {3, 1});
  const double ratio = static_cast<double>(geometry.slot(0, 0).file_bytes) / static_cast<double>(geometry.slot(0, 1).file_bytes);
  EXPECT_NEAR(ratio, 3, 0.2);
}

TEST_F(DrivesTest, SharesAreHundredthsOfTheFastest) {
  EXPECT_EQ(shares_of({3e9}), (std::vector<uint32_t>{100}));
  EXPECT_EQ(shares_of({3e9, 1e9, 3e9}), (std::vector<uint32_t>{100, 33, 100}));
  EXPECT_EQ(shares_of({1, 1000}), (std::vector<uint32_t>{1, 100}));
}

TEST_F(DrivesTest, DrivesAreDealtByTheirRates) {
  const Layout l = layout_of(2, {.rows = 60000});
  const auto shares = [&] { return read_layout_file(store_dir() / "layout.json").shares; };
  StoreOptions o = on_drives(2);
  std::atomic<int> measured = 0;
  o.measure_drives = [&](const std::vector<fs::path>& paths) {
    EXPECT_EQ(paths, o.paths);
    ++measured;
    return std::vector<double>{1e9, 2e9};
  };
  make(o, l);
  EXPECT_EQ(measured, 1);  // by one rank, for all
  EXPECT_EQ(shares(), (std::vector<uint32_t>{50, 100}));
  const auto store = Store::open_read_only(o.run_dir, layout_of(1, {.rows = 60000}), nullptr);
  std::map<uint32_t, double> bytes;
  for (uint32_t i = 0; i < store->layout().tiles().size(); ++i)
    for (const Part part : {Part::weights, Part::state}) bytes[store->extent(0, i, part).drive] += static_cast<double>(store->extent(0, i, part).bytes);
  EXPECT_NEAR(bytes[1] / bytes[0], 2, 0.2);
}

TEST_F(DrivesTest, RatesThatAreGivenAreNotMeasuredAndRewriteAStoreThatWasDealtOtherwise) {
  const Layout l = layout_of(2, {.rows = 6000});
  const auto shares = [&] { return read_layout_file(store_dir() / "layout.json").shares; };
  StoreOptions o = on_drives(2);
  o.measure_drives = [](const std::vector<fs::path>&) {
    ADD_FAILURE() << "measured";
    return std::vector<double>{};
  };
  o.drive_rates = {3e9, 1e9};
  make(o, l);
  EXPECT_EQ(shares(), (std::vector<uint32_t>{100, 33}));
  const auto opens = [&](const char* note) {
    expect_no_errors(on_ranks(2, [&](Ranks& ranks) {
      OpenReport report;
      expect_state(*Store::open(o, l, &report, ranks), 2, meta_of(2), 0, ranks.rank());
      if (ranks.rank() != 0) return;
      const std::string notes = fmt::format("{}", fmt::join(report.notes, "\n"));
      EXPECT_EQ(notes.empty(), note == nullptr) << notes;
      EXPECT_NE(notes.find(note == nullptr ? "" : note), std::string::npos) << notes;
    }));
  };
  opens(nullptr);
  std::swap(o.paths[0], o.paths[1]);
  std::swap(o.drive_rates[0], o.drive_rates[1]);
  opens(nullptr);  // the same drives have the same rates
  o.drive_rates = {1e9, 1e9};
  opens("storage.drive_rates");
  EXPECT_EQ(shares(), (std::vector<uint32_t>{100, 100}));
  o.drive_rates.clear();
  opens(nullptr);  // as it is
  EXPECT_EQ(shares(), (std::vector<uint32_t>{100, 100}));
}

TEST_F(DrivesTest, DrivesThatCannotBeMeasuredGetAsMuchEach) {
  StoreOptions o = on_drives(3);
  o.measure_drives = [](const std::vector<fs::path>&) { return std::vector<double>{}; };
  make(o, layout_of(1));
  EXPECT_EQ(read_layout_file(store_dir() / "layout.json").shares, (std::vector<uint32_t>{1, 1, 1}));
  o.drive_rates = {2e9, 2e9, 2e9};  // the same dealing, in other words
  OpenReport report;
  Store::open(o, layout_of(1), &report);
  EXPECT_TRUE(report.notes.empty());
  EXPECT_EQ(read_layout_file(store_dir() / "layout.json").shares, (std::vector<uint32_t>{1, 1, 1}));
}

TEST_F(DrivesTest, DrivesMayChangePlacesAndFoldersMayMove) {
  StoreOptions o = on_drives(2);
  const Layout l = layout_of(2);
  make(o, l);
  const auto opens_as_it_is = [&] {
    expect_no_errors(on_ranks(2, [&](Ranks& ranks) {
      OpenReport report;
      expect_state(*Store::open(o, l, &report, ranks), 2, meta_of(2), 0, ranks.rank());
      EXPECT_TRUE(report.notes.empty());
    }));
  };
  std::swap(o.paths[0], o.paths[1]);
  opens_as_it_is();
  const fs::path data = fs::directory_iterator(o.paths[0])->path(), moved = scratch.path() / "moved";
  fs::create_directory(moved);
  fs::rename(data, moved / data.filename());
  o.paths[0] = moved;
  opens_as_it_is();
  expect_step(*read_all(o), 2);
  o.paths[0] = o.paths[1] / ".";
  for (const auto& error : open_all(o, l)) EXPECT_NE(error_text(error), "");
  o.run_dir /= "other";
  expect_error(ErrorKind::config, {"twice"}, [&] { create(o, layout_of(1)); });
}

// In every rank in turn: before its part is durable, and with it durable.

}  // namespace
}  // namespace sluice::offload::test
