// layout.json: what a store holds and where, written once at creation. Form: docs/store_format.md,
// "layout.json".
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "offload/layout.h"
#include "offload/store_record.h"

namespace sluice::offload {

struct StoredTensor {
  std::string name;
  std::vector<int64_t> shape;
  bool trainable = true;
  bool operator==(const StoredTensor&) const = default;
};

struct StoredLayout {
  Uuid uuid{};
  std::string model_digest;
  uint64_t layout_hash = 0;
  std::string schema;
  uint64_t tile = 0;
  bool tied = false;
  uint32_t world = 1, slots = 2;
  std::vector<std::filesystem::path>
      drives;  // absolute folders of the slot files, the same on all ranks; "." is the store's own folder
  std::vector<uint32_t> shares;  // by drive: StoreGeometry
  std::vector<std::vector<StoredTensor>> blocks;
};

StoredLayout describe_layout(const Layout& layout);  // uuid, digest, slots, drives and shares are the caller's

// The text also lists every extent as (part, kind of file, offset, block, first, count, rank, drive), for readers.
std::string layout_json(const StoredLayout& stored, const Layout& layout);

// Error(disk) when the file is missing, is no layout.json, or has another format version.
StoredLayout read_layout_file(const std::filesystem::path& file);

// The same without the extents: rank 0 reads the file, the others get this.
std::string layout_message(const StoredLayout& stored);
StoredLayout parse_layout_message(const std::string& text);

// Error(disk) naming the first difference when it holds another model; Error(config) naming the stored value when schema or trainable
// set differ, which cannot be changed.
void check_model(const StoredLayout& stored, const Layout& layout, const std::string& model_digest);

// The layout that it was written with: the same model, cut as then. Error(disk) when its hash is another.
Layout stored_layout(const StoredLayout& stored, const Layout& model);

}  // namespace sluice::offload
