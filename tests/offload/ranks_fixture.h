// Stores of several ranks, which are threads here, and of several drives.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "store_fixture.h"

namespace sluice::offload::test {

class RanksStoreTest : public StoreTest {
 protected:
  static Layout layout_of(int world, const ModelOptions& o = {.rows = 1500}) {
    return small_layout(Schema::bf16, o, static_cast<uint32_t>(world));
  }
  // A store at `steps` that has been closed.
  void make(const StoreOptions& o, const Layout& l, uint64_t steps = 2) const {
    expect_no_errors(on_ranks(static_cast<int>(l.world()), [&](Ranks& ranks) {
      const auto store = create(o, l, ranks);
      for (uint64_t step = 1; step <= steps; ++step) train_step(*store, l, step, 0, ranks);
    }));
  }
  std::vector<std::exception_ptr> open_all(const StoreOptions& o, const Layout& l) const {
    return on_ranks(static_cast<int>(l.world()), [&](Ranks& ranks) { Store::open(o, l, nullptr, ranks); });
  }
  std::unique_ptr<Store> read_all(const StoreOptions& o) const {
    return Store::open_read_only(o.run_dir, layout_of(1), nullptr, o.paths);
  }
  StoreOptions on_drives(int count) const {
    StoreOptions o = options();
    for (int d = 0; d < count; ++d) {
      o.paths.push_back(scratch.path() / ("nvme" + std::to_string(d)));
      fs::create_directories(o.paths.back());
    }
    return o;
  }
  fs::path file(int rank, int slot) const {
    return store_dir() / slot_file_name(static_cast<uint32_t>(rank), 0, static_cast<uint32_t>(slot));
  }
};

}  // namespace sluice::offload::test
