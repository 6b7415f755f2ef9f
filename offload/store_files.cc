#include "offload/store_files.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string_view>

#include "base/error.h"
#include "io/page_cache.h"

namespace sluice::offload {
namespace {

namespace fs = std::filesystem;
using base::ErrorKind;
using base::fail;

// r003.d0.s1, r003.d0.base
bool is_data_file(const std::string& name) {
  std::string_view rest = name;
  const auto take = [&](std::string_view word) {
    if (!rest.starts_with(word)) return false;
    rest.remove_prefix(word.size());
    return true;
  };
  const auto digits = [&](size_t least) {
    const size_t n = std::min(rest.find_first_not_of("0123456789"), rest.size());
    rest.remove_prefix(n);
    return n >= least;
  };
  if (!take("r") || !digits(3) || !take(".d") || !digits(1) || !take(".")) return false;
  return rest == "base" || (take("s") && digits(1) && rest.empty());
}

void remove_data_folder(const fs::path& folder, io::FileObserver* observer) {
  std::error_code gone;  // another rank may be at it too
  std::vector<fs::path> files;
  for (fs::directory_iterator it(folder, gone), end; !gone && it != end; it.increment(gone))
    if (is_data_file(it->path().filename().string())) files.push_back(it->path());
  for (const fs::path& file : files) io::remove_tree(file, observer);
  if (fs::is_empty(folder, gone) && !gone) io::remove_tree(folder, observer);
  io::sync_directory(folder.parent_path(), observer);  // gone for good before the only file that names it
}

}  // namespace

fs::path store_folder(const fs::path& run_dir) {
  return run_dir / "store";
}
fs::path temporary_folder(const fs::path& run_dir) {
  return run_dir / "store.tmp";
}
fs::path rewritten_folder(const fs::path& run_dir) {
  return run_dir / "store.new";
}
fs::path super_file(const fs::path& store) {
  return store / "SUPER";
}
fs::path layout_file(const fs::path& store) {
  return store / "layout.json";
}
fs::path holder_file(const fs::path& store) {
  return store / "holder";
}
std::string data_folder_name(const Uuid& uuid) {
  return "sluice-" + to_string(uuid);
}

std::string slot_file_name(uint32_t rank, uint32_t drive, uint32_t slot) {
  const std::string file = fmt::format("r{:03}.d{}", rank, drive);
  return slot == kBaseSlot ? file + ".base" : fmt::format("{}.s{}", file, slot);
}

void check_paths(const std::vector<fs::path>& paths) {
  std::set<fs::path> seen;
  for (const fs::path& path : paths) {
    if (!fs::is_directory(path))
      fail(ErrorKind::config, "storage.paths: {} is no folder. Make it, or mount the drive", path.string());
    if (!seen.insert(fs::canonical(path)).second)
      fail(ErrorKind::config, "storage.paths names {} twice; name each drive once", path.string());
  }
}

void report_page_cache(const io::File& slot, bool strict) {
  if (slot.direct()) return;
  const std::string text = fmt::format("{}: no direct I/O (O_DIRECT) here, so slot files go through the page cache{}. ext4 and XFS on a local drive have direct I/O",
                                       slot.path().parent_path().string(),
                                       io::can_drop_from_cache(slot) ? ", which keeps nothing of them (RWF_DONTCACHE): slower"
                                                                     : ": slower, and in RAM that memory.host does not count. On tmpfs a restart loses the run");
  if (strict) fail(ErrorKind::disk, "{} (--strict: a fallback is an error)", text);
  spdlog::warn("{}", text);
}

void write_holder(const fs::path& store) {
  std::ofstream out(holder_file(store), std::ios::trunc);
  out << process_text() << ", boot " << boot_id() << "\n";
}

void remove_data(const StoredLayout& stored, const RemoveOptions& options) {
  if (stored.uuid == options.keep) return;
  std::set<fs::path> folders;
  for (const fs::path& drive : stored.drives)
    if (drive.filename() == data_folder_name(stored.uuid)) folders.insert(drive);
  for (const fs::path& path : options.paths)
    folders.insert(fs::absolute(path).lexically_normal() / data_folder_name(stored.uuid));
  for (const fs::path& folder : folders)
    if (fs::is_directory(folder)) remove_data_folder(folder, options.observer);
}

bool remove_store(const fs::path& folder, const RemoveOptions& options, Ranks& ranks) {
  const Bytes text = ranks.from_first("looking for a store that was given up", [&] {
    if (!fs::exists(folder)) return Bytes();
    std::string message = " ";  // there is one, but nothing names its data
    try {
      if (fs::exists(layout_file(folder))) message = layout_message(read_layout_file(layout_file(folder)));
    } catch (const base::Error&) {  // torn: it was not durable yet, so the folders it would name were never made
    }
    return bytes_of(message);
  });
  if (text.empty()) return false;
  if (text.size() > 1)
    ranks.agree("removing slot files", [&] {
      remove_data(parse_layout_message(text_of(text)), options);
    });
  ranks.on_first("removing a store that was given up", [&] {
    io::remove_tree(folder, options.observer);
    io::sync_directory(folder.parent_path(), options.observer);
  });
  return true;
}

}  // namespace sluice::offload
