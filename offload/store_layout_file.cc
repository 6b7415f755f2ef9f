#include "offload/store_layout_file.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/hash.h"
#include "offload/store_slot_file.h"

namespace sluice::offload {
namespace {

using base::ErrorKind;
using base::fail;
using nlohmann::json;

constexpr const char* kFormat = "sluice-store";
constexpr uint32_t kMostRanks = 1 << 16;  // more is damage

const char* name_of(BlockKind kind) {
  switch (kind) {
    case BlockKind::embedding:
      return "embedding";
    case BlockKind::layer:
      return "layer";
    case BlockKind::head:
      return "head";
  }
  return "?";
}

json fields_json(Schema schema, Part part) {
  json list = json::array();
  for (const ExtentField& field : extent_fields(schema, part)) list.push_back({field.name, field.bytes});
  return list;
}

json blocks_json(const Layout& layout) {
  json blocks = json::array();
  for (const BlockPlace& block : layout.blocks()) {
    json tensors = json::array();
    for (const TensorPlace& t : block.tensors)
      tensors.push_back(
          {{"name", t.name}, {"shape", t.shape}, {"trainable", t.trainable}, {"first", t.offset}});
    blocks.push_back({{"kind", name_of(block.kind)}, {"tensors", std::move(tensors)}});
  }
  return blocks;
}

json extents_json(const Layout& layout, const std::vector<uint32_t>& shares) {
  const StoreGeometry geometry(layout, shares);
  json extents = json::array();
  for (const Part part : {Part::weights, Part::state})
    for (uint32_t i = 0; i < layout.tiles().size(); ++i) {
      const Tile& tile = layout.tiles()[i];
      if (part == Part::state && !tile.trainable) continue;
      const StoreGeometry::Place place = geometry.place(i, part);
      extents.push_back({part == Part::weights ? "weights" : "state", place.base ? "base" : "slot",
                         place.offset, tile.block, tile.first, tile.count, place.rank, place.drive});
    }
  return extents;
}

StoredLayout parse(const json& root) {
  StoredLayout stored;
  if (!parse_uuid(root.at("uuid").get<std::string>(), &stored.uuid))
    throw std::runtime_error("uuid is not 32 hex digits");
  stored.model_digest = root.at("model_digest").get<std::string>();
  const std::string hash = root.at("layout_hash").get<std::string>();
  size_t used = 0;
  stored.layout_hash = std::stoull(hash, &used, 16);
  if (used != hash.size()) throw std::runtime_error("layout_hash is not a hex number");
  stored.schema = root.at("schema").get<std::string>();
  stored.tile = root.at("tile").get<uint64_t>();
  stored.tied = root.at("tied").get<bool>();
  stored.world = root.at("world").get<uint32_t>();
  stored.slots = root.at("slots").get<uint32_t>();
  for (const json& drive : root.at("drives")) stored.drives.emplace_back(drive.get<std::string>());
  // Stores that were made before drives had shares have one drive.
  stored.shares = root.value("shares", std::vector<uint32_t>{1});
  if (stored.tile == 0 || stored.tile % kLeafElements != 0) throw std::runtime_error("tile is no multiple of a leaf");
  if (stored.world == 0 || stored.world > kMostRanks) throw std::runtime_error("world is no number of ranks");
  if (stored.slots != 1 && stored.slots != 2) throw std::runtime_error("slots is neither 1 nor 2");
  if (stored.drives.empty() || stored.shares.size() != stored.drives.size())
    throw std::runtime_error("drives and shares do not match");
  for (const uint32_t share : stored.shares)
    if (share == 0 || share > 1000) throw std::runtime_error("a drive's share is not in 1 to 1000");
  for (const json& block : root.at("blocks")) {
    auto& tensors = stored.blocks.emplace_back();
    for (const json& t : block.at("tensors"))
      tensors.push_back({t.at("name").get<std::string>(), t.at("shape").get<std::vector<int64_t>>(),
                         t.at("trainable").get<bool>()});
  }
  return stored;
}

std::string text_of(const StoredTensor& tensor) {
  return fmt::format("{} [{}]", tensor.name, fmt::join(tensor.shape, ", "));
}

// The first tensor that makes it another model; empty: none.
std::string other_tensor(const StoredLayout& a, const StoredLayout& b) {
  if (a.blocks.size() != b.blocks.size())
    return fmt::format("{} blocks, this model has {}", a.blocks.size(), b.blocks.size());
  for (size_t i = 0; i < a.blocks.size(); ++i) {
    if (a.blocks[i].size() != b.blocks[i].size())
      return fmt::format("{} tensors in block {}, this model has {}", a.blocks[i].size(), i,
                         b.blocks[i].size());
    for (size_t j = 0; j < a.blocks[i].size(); ++j) {
      const StoredTensor &x = a.blocks[i][j], &y = b.blocks[i][j];
      if (x.name != y.name || x.shape != y.shape)
        return fmt::format("{}, this model has {}", text_of(x), text_of(y));
    }
  }
  return a.tied == b.tied ? ""
                          : fmt::format("{} embedding and head, this model the other way",
                                        a.tied ? "a tied" : "an untied");
}

[[noreturn]] void refuse_change(const std::string& what, const std::string& stored, const std::string& wanted) {
  fail(ErrorKind::config,
       "the store was created with {} {}, this config asks for {}. It cannot be changed in an existing store: set it back to {}, or "
       "start a new run in another run.dir",
       what, stored, wanted, stored);
}

std::vector<json> tensors_json(const StoredLayout& stored) {
  std::vector<json> blocks;
  for (const auto& block : stored.blocks) {
    json tensors = json::array();
    for (const StoredTensor& t : block) tensors.push_back({{"name", t.name}, {"shape", t.shape}, {"trainable", t.trainable}});
    blocks.push_back({{"tensors", std::move(tensors)}});
  }
  return blocks;
}

// All but what describes the layout's tensors and extents.
json head_json(const StoredLayout& stored) {
  json drives = json::array();
  for (const auto& drive : stored.drives) drives.push_back(drive.string());
  return {{"format", kFormat},
          {"version", kStoreVersion},
          {"uuid", to_string(stored.uuid)},
          {"model_digest", stored.model_digest},
          {"layout_hash", base::hash_hex(stored.layout_hash)},
          {"schema", stored.schema},
          {"tile", stored.tile},
          {"tied", stored.tied},
          {"world", stored.world},
          {"slots", stored.slots},
          {"drives", std::move(drives)},
          {"shares", stored.shares}};
}

}  // namespace

StoredLayout describe_layout(const Layout& layout) {
  StoredLayout stored;
  stored.layout_hash = layout.digest();
  stored.schema = to_string(layout.schema());
  stored.tile = layout.tile_elements();
  stored.world = layout.world();
  stored.tied = layout.tied();
  for (const BlockPlace& block : layout.blocks()) {
    auto& tensors = stored.blocks.emplace_back();
    for (const TensorPlace& t : block.tensors) tensors.push_back({t.name, t.shape, t.trainable});
  }
  return stored;
}

std::string layout_json(const StoredLayout& stored, const Layout& layout) {
  json root = head_json(stored);
  root["fields"] = {{"weights", fields_json(layout.schema(), Part::weights)},
                    {"state", fields_json(layout.schema(), Part::state)}};
  root["blocks"] = blocks_json(layout);
  root["extents"] = extents_json(layout, stored.shares);
  return root.dump() + "\n";
}

std::string layout_message(const StoredLayout& stored) {
  json root = head_json(stored);
  root["blocks"] = tensors_json(stored);
  return root.dump();
}

StoredLayout parse_layout_message(const std::string& text) {
  return parse(json::parse(text));
}

StoredLayout read_layout_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in)
    fail(ErrorKind::disk, "cannot read {}: there is no store, or a part of it is missing", file.string());
  std::stringstream text;
  text << in.rdbuf();
  try {
    const json root = json::parse(text.str());
    if (root.at("format") != kFormat) throw std::runtime_error("is the layout of something else");
    const auto version = root.at("version").get<uint32_t>();
    if (version != kStoreVersion)
      throw std::runtime_error(
          fmt::format("has format version {}, this program knows {}", version, kStoreVersion));
    return parse(root);
  } catch (const std::exception& error) {  // of the parser, or above
    std::string what = error.what();  // the parser's begin with "[json.exception...] "
    if (what.starts_with("[")) what.erase(0, what.find("] ") + 2);
    fail(ErrorKind::disk, "{} is damaged or not a store's: {}. Restore it from a copy, or start again in another run.dir", file.string(), what);
  }
}

void check_model(const StoredLayout& stored, const Layout& layout, const std::string& model_digest) {
  const StoredLayout wanted = describe_layout(layout);
  if (const std::string other = other_tensor(stored, wanted); !other.empty())
    fail(ErrorKind::disk,
         "the store holds another model: it has {}. Use another run.dir, or the model it was created from",
         other);
  if (stored.model_digest != model_digest)
    fail(ErrorKind::disk,
         "the store was created from another model (digest {}, this model has {}). Use another run.dir, or "
         "the model "
         "it was created from",
         stored.model_digest, model_digest);
  if (stored.schema != wanted.schema) refuse_change("schema", stored.schema, wanted.schema);
  for (size_t i = 0; i < stored.blocks.size(); ++i)
    for (size_t j = 0; j < stored.blocks[i].size(); ++j)
      if (stored.blocks[i][j].trainable != wanted.blocks[i][j].trainable)
        refuse_change("tensor " + stored.blocks[i][j].name,
                      stored.blocks[i][j].trainable ? "trainable" : "frozen",
                      wanted.blocks[i][j].trainable ? "trainable" : "frozen");
}

Layout stored_layout(const StoredLayout& stored, const Layout& model) {
  Layout layout = model.resized(stored.tile, stored.world);
  if (stored.layout_hash != layout.digest())
    fail(ErrorKind::disk, "the store's layout hash is {}, this model gives {} with its tile of {} and {} rank{}",
         base::hash_hex(stored.layout_hash), base::hash_hex(layout.digest()), stored.tile, stored.world,
         stored.world == 1 ? "" : "s");
  return layout;
}

}  // namespace sluice::offload
