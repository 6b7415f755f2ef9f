#include "offload/store_reshard.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "offload/store_builder.h"
#include "offload/store_ranges.h"
#include "offload/store_shares.h"

namespace sluice::offload {
namespace {

namespace fs = std::filesystem;
using base::ErrorKind;
using base::fail;

std::string place_text(const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  for (const fs::path& folder : folders) names.push_back(folder.string());
  return fmt::format("{}", fmt::join(names, ", "));
}

void copy_content(StoreBuilder& builder, const OpenedStore& old, const Layout& old_layout, const Layout& layout) {
  std::optional<StoredRanges> ranges;  // made where a lack of memory is everybody's error
  builder.fill(state_bytes(layout.schema()), [&](uint32_t index, std::span<std::byte> weights, std::span<std::byte> state) {
    if (!ranges) ranges.emplace(old, old_layout);
    const Tile& tile = layout.tiles()[index];
    ranges->read(Part::weights, tile, weights);
    if (tile.trainable) ranges->read(Part::state, tile, state);
  });
}

}  // namespace

std::vector<std::string> differences(const StoreFiles& files, const StoreOptions& options, const Layout& layout, Ranks& ranks) {
  std::vector<std::string> list;
  const auto compare = [&](const char* what, uint64_t stored, uint64_t wanted) {
    if (stored != wanted) list.push_back(fmt::format("{} {} -> {}", what, stored, wanted));
  };
  compare("ranks", files.stored.world, layout.world());
  compare("storage.tile", files.stored.tile, layout.tile_elements());
  compare("slots", files.stored.slots, options.durable == Durable::none ? 1 : 2);
  const std::vector<Bytes> moves = ranks.exchange("comparing storage.paths", [&] {
    const std::vector<uint64_t> words = {files.in_place ? 0u : 1u, wants_other_shares(options, files) ? 1u : 0u};
    return bytes_of(words);
  });
  const auto any = [&](size_t which) { return std::ranges::any_of(moves, [=](const Bytes& b) { return words_of(b).at(which) != 0; }); };
  if (any(0))
    list.push_back(fmt::format("slot files {} -> {}", place_text(files.folders),
                               options.paths.empty() ? files.store.string() : place_text(options.paths)));
  if (any(1)) list.push_back(fmt::format("storage.drive_rates {:.3g}", fmt::join(options.drive_rates, ", ")));
  return list;
}

OpenedStore reshard(const OpenedStore& old, const Layout& old_layout, const StoreOptions& options, const Layout& layout,
                    Ranks& ranks, Failpoints& failpoints) {
  const fs::path folder = rewritten_folder(options.run_dir), store = old.files.store;
  ranks.agree("checking storage.paths", [&] { check_paths(options.paths); });
  StoreBuilder builder(options, layout, ranks, failpoints, folder, "reshard");
  builder.check_space();
  ranks.on_first("trying an exchange of names", [&] {
    if (!io::can_exchange_paths(options.run_dir))
      fail(ErrorKind::disk,
           "{}: this file system cannot exchange two names in one step, which rewriting a store needs. Put run.dir on ext4, XFS or "
           "btrfs (copy it; slot files under storage.paths may stay), or go back to the settings that the store was created with",
           options.run_dir.string());
  });
  try {
    builder.make_files();
    copy_content(builder, old, old_layout, layout);
    builder.publish(old.record.meta);
    builder.lock();  // so that nobody else uses the new store between the exchange and our use of it
  } catch (...) {
    builder.discard();
    throw;
  }
  ranks.on_first("exchanging the stores", [&] {
    io::exchange_paths(folder, store, options.observer);
    failpoints.pass("reshard.exchanged");
    io::sync_directory(options.run_dir, options.observer);
    failpoints.pass("reshard.durable");
  });
  OpenedStore opened = builder.take(store);
  // Only now, and under the old store's locks.
  RemoveOptions remove{.paths = options.paths, .keep = opened.files.stored.uuid, .observer = options.observer};
  remove_store(folder, remove, ranks);
  ranks.on_first("finishing the rewriting", [&] {
    write_holder(store);
    failpoints.pass("reshard.done");
  });
  return opened;
}

}  // namespace sluice::offload
