// Names and folders of a store, and how they are removed.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/file.h"
#include "offload/ranks.h"
#include "offload/store_layout_file.h"
#include "offload/store_slot_file.h"

namespace sluice::offload {

std::filesystem::path store_folder(const std::filesystem::path& run_dir);      // RUN/store
std::filesystem::path temporary_folder(const std::filesystem::path& run_dir);  // RUN/store.tmp: a store that is being created
// RUN/store.new: a store that is being rewritten; after the exchange of names, the old one.
std::filesystem::path rewritten_folder(const std::filesystem::path& run_dir);
std::filesystem::path super_file(const std::filesystem::path& store);
std::filesystem::path layout_file(const std::filesystem::path& store);
std::filesystem::path holder_file(const std::filesystem::path& store);
std::string data_folder_name(const Uuid& uuid);  // "sluice-<uuid>", under a storage path
std::string slot_file_name(uint32_t rank, uint32_t drive, uint32_t slot);  // kBaseSlot: the base file

// Error(config) for folders that cannot hold slot files: none there, or named twice.
void check_paths(const std::vector<std::filesystem::path>& paths);

// O_DIRECT is refused for this slot file: one log line, with strict an Error(disk).
void report_page_cache(const io::File& slot, bool strict);

// Text for the process that finds the store locked; the lock alone decides. Never fails.
void write_holder(const std::filesystem::path& store);

// What else than a folder's layout.json is needed to find and to spare slot files.
struct RemoveOptions {
  std::vector<std::filesystem::path> paths;  // of the config: data folders may have been moved there
  Uuid keep{};                               // slot files of this store are never removed
  io::FileObserver* observer = nullptr;
};

// Removes the slot and base files of a store, where this rank sees them, and their folders once they are empty. Other ranks may do the
// same. Files that are not the store's own, as links of checkpoints, stay.
void remove_data(const StoredLayout& stored, const RemoveOptions& options);

// Removes a store that is given up (store.tmp, store.new): all ranks the data that its layout.json names, then rank 0 the folder.
// Collective. False: there was none.
bool remove_store(const std::filesystem::path& folder, const RemoveOptions& options, Ranks& ranks);

}  // namespace sluice::offload
