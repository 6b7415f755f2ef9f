// A small model, steps whose bytes are a function of their number, and checks that a store holds exactly one
// of them.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "offload/store.h"
#include "offload/store_lock.h"
#include "offload/store_slot_file.h"
#include "offload/thread_ranks.h"

namespace sluice::offload::test {

namespace fs = std::filesystem;

class Scratch {
 public:
  explicit Scratch(const fs::path& parent = fs::temp_directory_path()) {
    std::string name = (parent / "sluice-store-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = fs::canonical(name);
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// In memory where possible: what is tested here is order, not the drive.
inline fs::path fast_folder() {
  return fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
}

struct ModelOptions {
  int64_t rows = 520;  // of the layer's matrix: more than one tile of 65536
  bool freeze_norm = false;
  bool freeze_embedding = false;
};

inline ModelDesc small_model(const ModelOptions& o = {}) {
  ModelDesc model;
  model.blocks.push_back({BlockKind::embedding, {{"embed", {37, 128}, !o.freeze_embedding, 0}}});
  model.blocks.push_back(
      {BlockKind::layer,
       {{"layer.norm", {100}, !o.freeze_norm, 1}, {"layer.matrix", {o.rows, 128}, true, 0}}});
  model.blocks.push_back({BlockKind::head, {{"norm", {100}, true, 1}, {"head", {37, 128}, true, 0}}});
  return model;
}

inline Layout small_layout(Schema schema = Schema::bf16, const ModelOptions& o = {}, uint32_t world = 1) {
  return {small_model(o), schema, kLeafElements, world};
}

inline StepMeta meta_of(uint64_t step) {
  return {.step = step,
          .samples = 10 * step,
          .tokens = 1000 * step,
          .seed = 7,
          .skipped = 0,
          .lr = 0.5 / static_cast<double>(step + 1)};
}

inline uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// The bytes of an extent after `step`; of step 0, the state that CREATE leaves (m and v zero). A function of the element, however the
// segment is cut. `version` tells apart attempts at the same step. Frozen extents never change. The padding of a tile is zero.
inline std::vector<std::byte> extent_content(const Layout& layout, uint32_t tile, Part part, uint64_t step,
                                             uint64_t version = 0) {
  const Tile& t = layout.tiles()[tile];
  const uint64_t seed = t.trainable ? mix(mix(step) + version) : 0;
  std::vector<std::byte> bytes;
  uint64_t which = static_cast<uint64_t>(part) * 8;
  for (const ExtentField& field : extent_fields(layout.schema(), part)) {
    const size_t begin = bytes.size();
    bytes.resize(begin + t.padded * field.bytes);
    const uint64_t stream = mix(seed + (t.block * 2 + t.trainable) * 100 + which++);
    const bool of_master = begin == 0 && master_bytes(layout.schema()) > 0;
    if (step == 0 && part == Part::state && !of_master) continue;
    for (size_t i = 0; i < t.count; ++i) {
      const uint64_t word = mix(stream + t.first + i);
      std::memcpy(bytes.data() + begin + i * field.bytes, &word, field.bytes);
    }
  }
  return bytes;
}

inline Store::Fill initial_fill(const Layout& layout) {
  return [&layout](const Tile& tile, std::span<std::byte> weights, std::span<std::byte> master) {
    const auto index = static_cast<uint32_t>(&tile - layout.tiles().data());
    const auto content = extent_content(layout, index, Part::weights, 0);
    std::copy(content.begin(), content.end(), weights.begin());
    if (master.empty()) return;
    const auto state = extent_content(layout, index, Part::state, 0);
    std::copy_n(state.begin(), master.size(), master.begin());
  };
}

inline bool is_own(const Tile& tile, const Ranks& ranks) {
  return tile.shard == static_cast<uint32_t>(ranks.rank());
}

inline void write_extents(Store& store, const Layout& layout, uint64_t step, uint64_t version = 0,
                          const Ranks& ranks = single_rank()) {
  for (uint32_t i = 0; i < layout.tiles().size(); ++i) {
    if (!layout.tiles()[i].trainable || !is_own(layout.tiles()[i], ranks)) continue;
    for (const Part part : {Part::weights, Part::state}) {
      const auto content = extent_content(layout, i, part, step, version);
      const Extent extent = store.extent(store.target(), i, part);
      extent.file->write_at(extent.offset, content);
      store.set_hash(i, part, hash_extent(layout.schema(), part, layout.tiles()[i], content));
    }
  }
}

inline void train_step(Store& store, const Layout& layout, uint64_t step, uint64_t version = 0,
                       const Ranks& ranks = single_rank()) {
  store.begin_writes();
  write_extents(store, layout, step, version, ranks);
  store.prepare(meta_of(step));
  store.publish();
}

// The published generation holds exactly the bytes of `content_step` and the meta of a step. rank: only its shard.
inline void expect_state(Store& store, uint64_t content_step, const StepMeta& meta, uint64_t version = 0,
                         std::optional<int> rank = std::nullopt) {
  const Layout& layout = store.layout();
  EXPECT_EQ(store.meta(), meta) << "step " << store.meta().step;
  store.verify();
  for (uint32_t i = 0; i < layout.tiles().size(); ++i)
    for (const Part part : {Part::weights, Part::state}) {
      if (part == Part::state && !layout.tiles()[i].trainable) continue;
      if (rank && layout.tiles()[i].shard != static_cast<uint32_t>(*rank)) continue;
      const Extent extent = store.extent(store.published(), i, part);
      std::vector<std::byte> bytes(extent.bytes);
      extent.file->read_at(extent.offset, bytes);
      ASSERT_TRUE(bytes == extent_content(layout, i, part, content_step, version))
          << "tile " << i << " at step " << content_step;
      ASSERT_EQ(store.hash(store.published(), i, part),
                hash_extent(layout.schema(), part, layout.tiles()[i], bytes));
    }
}
inline void expect_step(Store& store, uint64_t step) {
  expect_state(store, step, meta_of(step));
}

// Runs `body` on each rank; one rank on this thread. Returns what each threw.
inline std::vector<std::exception_ptr> on_ranks(int world, const std::function<void(Ranks&)>& body) {
  if (world > 1) return run_thread_ranks(world, body);
  try {
    body(single_rank());
    return {nullptr};
  } catch (...) {
    return {std::current_exception()};
  }
}

// "" or "exit code: message".
inline std::string error_text(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
    return "";
  } catch (const base::Error& e) {
    return std::to_string(e.exit_code()) + ": " + e.what();
  } catch (const std::exception& e) {
    return e.what();
  }
}

inline void expect_no_errors(const std::vector<std::exception_ptr>& errors) {
  for (size_t r = 0; r < errors.size(); ++r) EXPECT_EQ(error_text(errors[r]), "") << "rank " << r;
}

// Fails unless `action` throws an Error of this kind whose message has all the words.
template <class Action>
void expect_error(base::ErrorKind kind, const std::vector<std::string>& words, Action action) {
  try {
    action();
    ADD_FAILURE() << "no error; wanted one with: " << ::testing::PrintToString(words);
  } catch (const base::Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    for (const std::string& word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

inline void flip_byte(const fs::path& file, uint64_t offset) {
  std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
  f.seekg(static_cast<std::streamoff>(offset));
  const char old = static_cast<char>(f.get());
  f.seekp(static_cast<std::streamoff>(offset));
  f.put(static_cast<char>(old ^ 0x10));
  ASSERT_TRUE(f.good()) << file;
}

inline Page read_page(const fs::path& file, uint64_t offset) {
  Page page{};
  std::ifstream in(file, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(offset));
  in.read(reinterpret_cast<char*>(page.data()), kPageBytes);
  EXPECT_TRUE(in.good()) << file;
  return page;
}

inline void write_page(const fs::path& file, uint64_t offset, const Page& page) {
  std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
  f.seekp(static_cast<std::streamoff>(offset));
  f.write(reinterpret_cast<const char*>(page.data()), kPageBytes);
  ASSERT_TRUE(f.good()) << file;
}

// Names below a folder and the bytes of each file, to see that nothing changed.
inline std::map<std::string, std::string> snapshot(const fs::path& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    std::string content;
    if (entry.is_regular_file()) {
      std::ifstream in(entry.path(), std::ios::binary);
      content.assign(std::istreambuf_iterator<char>(in), {});
    }
    all[entry.path().lexically_relative(folder).string()] = std::move(content);
  }
  return all;
}

class StoreTest : public ::testing::Test {
 protected:
  StoreOptions options() const {
    StoreOptions o;
    o.run_dir = scratch.path() / "run";
    o.model_digest = "d1";
    o.lock_seconds = 0.2;
    return o;
  }
  fs::path store_dir() const { return scratch.path() / "run/store"; }
  fs::path super() const { return store_dir() / "SUPER"; }
  fs::path slot_file(int slot) const {
    return store_dir() / slot_file_name(0, 0, static_cast<uint32_t>(slot));
  }
  std::unique_ptr<Store> create(const StoreOptions& o, const Layout& l) const {
    return Store::create(o, l, meta_of(0), initial_fill(l));
  }
  std::unique_ptr<Store> create() const { return create(options(), layout); }
  std::unique_ptr<Store> open(OpenReport* report = nullptr) const {
    return Store::open(options(), layout, report);
  }

  // The same on several ranks. failpoint: told the rank too.
  using RankFailpoint = std::function<void(int rank, std::string_view name)>;
  std::unique_ptr<Store> create(const StoreOptions& o, const Layout& l, Ranks& ranks) const {
    return Store::create(o, l, meta_of(0), initial_fill(l), ranks);
  }
  static StoreOptions with_failpoint(StoreOptions o, const RankFailpoint& failpoint, const Ranks& ranks) {
    if (failpoint) o.failpoint = [failpoint, rank = ranks.rank()](std::string_view name) { failpoint(rank, name); };
    return o;
  }
  // What a process sees that reads the store of all ranks.
  std::unique_ptr<Store> read(const StoreOptions& o) const { return Store::open_read_only(o.run_dir, layout, nullptr, o.paths); }

  const Scratch scratch{fast_folder()};
  const Layout layout = small_layout();
};

}  // namespace sluice::offload::test
