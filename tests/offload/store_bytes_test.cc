// The bytes of record, slot header and layout, field by field: what docs/store_format.md promises.
#include <gtest/gtest.h>

#include <cstring>

#include "base/hash.h"
#include "offload/store_layout_file.h"
#include "offload/store_record.h"
#include "offload/store_slot_file.h"
#include "store_fixture.h"

namespace sluice::offload::test {
namespace {

uint64_t le(const Page& page, size_t offset, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<uint64_t>(page[offset + i]);
  return value;
}

std::string text(const Page& page, size_t offset, size_t bytes) {
  return {reinterpret_cast<const char*>(page.data()) + offset, bytes};
}

Uuid counting_uuid() {
  Uuid uuid;
  for (size_t i = 0; i < uuid.size(); ++i) uuid[i] = static_cast<std::byte>(i + 1);
  return uuid;
}

const StepMeta kMeta{.step = 0x1122334455667788,
                     .samples = 2,
                     .tokens = 3,
                     .seed = 4,
                     .skipped = 5,
                     .lr = 1.5,
                     .loss_scale = 2.0,
                     .good_steps = 6,
                     .hysteresis = 7};

Record sample_record() {
  return {.slot = 1,
          .uuid = counting_uuid(),
          .seq = 9,
          .gen = 8,
          .root = 0xfedcba9876543210,
          .layout_hash = 77,
          .world = 1,
          .flags = Record::kUndoable,
          .meta = kMeta};
}

void expect_meta(const Page& page, size_t offset) {
  EXPECT_EQ(le(page, offset, 8), kMeta.step);
  EXPECT_EQ(le(page, offset + 8, 8), 2u);
  EXPECT_EQ(le(page, offset + 16, 8), 3u);
  EXPECT_EQ(le(page, offset + 24, 8), 4u);
  EXPECT_EQ(le(page, offset + 32, 8), 5u);
  EXPECT_EQ(le(page, offset + 40, 8), 0x3ff8000000000000u);  // 1.5
  EXPECT_EQ(le(page, offset + 48, 8), 0x4000000000000000u);  // 2.0
  EXPECT_EQ(le(page, offset + 56, 8), 6u);
  EXPECT_EQ(le(page, offset + 64, 8), 7u);
  for (size_t i = 72; i < 256; ++i) EXPECT_EQ(le(page, offset + i, 1), 0u);
}

TEST(StoreBytes, RecordFieldsLieWhereTheFormatSays) {
  const Page page = encode_record(sample_record());
  EXPECT_EQ(text(page, 0, 8), "SLUICREC");
  EXPECT_EQ(le(page, 8, 4), 1u);
  EXPECT_EQ(le(page, 12, 4), 1u);
  EXPECT_EQ(le(page, 16, 8), 0x0807060504030201u);
  EXPECT_EQ(le(page, 24, 8), 0x100f0e0d0c0b0a09u);
  EXPECT_EQ(le(page, 32, 8), 9u);
  EXPECT_EQ(le(page, 40, 8), kMeta.step);
  EXPECT_EQ(le(page, 48, 8), 8u);
  EXPECT_EQ(le(page, 56, 8), 0xfedcba9876543210u);
  EXPECT_EQ(le(page, 64, 8), 77u);
  EXPECT_EQ(le(page, 72, 4), 1u);
  EXPECT_EQ(le(page, 76, 4), 1u);
  for (size_t i = 80; i < 128; ++i) EXPECT_EQ(le(page, i, 1), 0u);
  expect_meta(page, 128);
  for (size_t i = 384; i < 4088; ++i) EXPECT_EQ(le(page, i, 1), 0u);
  EXPECT_EQ(le(page, 4088, 8), base::xxh3(page.data(), 4088));
  EXPECT_EQ(record_offset(9), 1u << 20);
  EXPECT_EQ(record_offset(10), 0u);
}

TEST(StoreBytes, HeaderFieldsLieWhereTheFormatSays) {
  SlotHeader header{.uuid = counting_uuid(),
                    .rank = 3,
                    .drive = 2,
                    .slot = 1,
                    .gen = 8,
                    .extents = 10,
                    .data_offset = 2 << 20,
                    .file_bytes = 5 << 20,
                    .table_hash = 99,
                    .meta = kMeta,
                    .attempt = "pid 1 on host",
                    .boot_id = "boot"};
  const Page page = encode_header(header);
  EXPECT_EQ(text(page, 0, 8), "SLUICSLT");
  EXPECT_EQ(le(page, 8, 4), 1u);
  EXPECT_EQ(le(page, 12, 4), 3u);
  EXPECT_EQ(le(page, 16, 8), 0x0807060504030201u);
  EXPECT_EQ(le(page, 32, 4), 2u);
  EXPECT_EQ(le(page, 36, 4), 1u);
  EXPECT_EQ(le(page, 40, 8), 8u);
  EXPECT_EQ(le(page, 48, 8), kMeta.step);
  EXPECT_EQ(le(page, 56, 8), 10u);
  EXPECT_EQ(le(page, 64, 8), 2u << 20);
  EXPECT_EQ(le(page, 72, 8), 5u << 20);
  EXPECT_EQ(le(page, 80, 8), 99u);
  expect_meta(page, 128);
  EXPECT_EQ(text(page, 384, 14), std::string("pid 1 on host\0", 14));
  EXPECT_EQ(text(page, 512, 5), std::string("boot\0", 5));
  EXPECT_EQ(le(page, 4088, 8), base::xxh3(page.data(), 4088));

  SlotHeader back;
  EXPECT_EQ(decode_header(page, &back), PageState::valid);
  EXPECT_EQ(back, header);
  header.attempt.assign(500, 'x');  // cut, not overrun
  EXPECT_EQ(decode_header(encode_header(header), &back), PageState::valid);
  EXPECT_EQ(back.attempt, std::string(128, 'x'));
  EXPECT_EQ(back.boot_id, "boot");
}

// The whole page by its hash: a change of the format must be meant, and needs another version.
// (hysteresis came later, into bytes that were zero.)
TEST(StoreBytes, GoldenPages) {
  Record record = sample_record();
  record.meta.hysteresis = 0;
  EXPECT_EQ(base::hash_hex(base::xxh3(encode_record(record))), "e89276f8b0bfd07b");
  EXPECT_EQ(base::hash_hex(base::xxh3(
                encode_header({.uuid = counting_uuid(), .meta = record.meta, .attempt = "a", .boot_id = "b"}))),
            "17b342016c8c79fe");
}

TEST(StoreBytes, RecordComesBackAndAnyFlippedBitIsSeen) {
  Page page = encode_record(sample_record());
  Record back;
  ASSERT_EQ(decode_record(page, &back), PageState::valid);
  EXPECT_EQ(back, sample_record());
  for (size_t bit = 0; bit < 8 * kPageBytes; ++bit) {
    const auto mask = static_cast<std::byte>(1u << bit % 8);
    page[bit / 8] ^= mask;
    ASSERT_EQ(decode_record(page, &back), PageState::damaged) << "bit " << bit;
    page[bit / 8] ^= mask;
  }
}

TEST(StoreBytes, EmptyTornAndForeignPages) {
  Record back;
  EXPECT_EQ(decode_record(Page{}, &back), PageState::empty);
  Page page = encode_record(sample_record());
  Page torn = page;
  std::memset(torn.data() + 512, 0, kPageBytes - 512);  // only the first sector arrived
  EXPECT_EQ(decode_record(torn, &back), PageState::damaged);
  EXPECT_EQ(decode_record(encode_header({}), &back), PageState::damaged);
  page[8] = std::byte{2};
  const uint64_t hash = base::xxh3(page.data(), 4088);
  std::memcpy(page.data() + 4088, &hash, 8);
  EXPECT_EQ(decode_record(page, &back), PageState::other_version);
}

TEST(StoreBytes, UuidText) {
  const Uuid uuid = counting_uuid();
  EXPECT_EQ(to_string(uuid), "0102030405060708090a0b0c0d0e0f10");
  Uuid back{};
  EXPECT_TRUE(parse_uuid(to_string(uuid), &back));
  EXPECT_EQ(back, uuid);
  EXPECT_FALSE(parse_uuid("0102", &back));
  EXPECT_FALSE(parse_uuid("../../../../../../../../../../etc", &back));
  EXPECT_FALSE(parse_uuid("0102030405060708090A0B0C0D0E0F10", &back));
  EXPECT_NE(make_uuid(), make_uuid());
}

TEST(StoreBytes, ExtentsLieInOrderOnPagesWithoutGaps) {
  const Layout layout = small_layout(Schema::bf16, {.freeze_norm = true});
  const StoreGeometry geometry(layout);
  uint64_t slot_at = kDataAlign, base_at = kDataAlign;
  uint32_t slot_entry = 0, base_entry = 0;
  for (const Part part : {Part::weights, Part::state})
    for (uint32_t i = 0; i < layout.tiles().size(); ++i) {
      const Tile& tile = layout.tiles()[i];
      if (part == Part::state && !tile.trainable) continue;
      const StoreGeometry::Place place = geometry.place(i, part);
      EXPECT_EQ(place.base, !tile.trainable);
      EXPECT_EQ(place.entry, tile.trainable ? slot_entry++ : base_entry++);
      uint64_t& at = tile.trainable ? slot_at : base_at;
      EXPECT_EQ(place.offset, at);
      EXPECT_EQ(place.offset % io::kAlignment, 0u);
      EXPECT_EQ(place.bytes, tile.padded * (part == Part::weights ? 2 : 10));
      at += place.bytes;
    }
  EXPECT_EQ(geometry.slot(0, 0).extents, slot_entry);
  EXPECT_EQ(geometry.slot(0, 0).file_bytes, slot_at);
  EXPECT_EQ(geometry.base(0, 0).extents, 1u);
  EXPECT_EQ(geometry.base(0, 0).file_bytes, base_at);
}

TEST(StoreBytes, BigTablesMoveTheDataToTheNextAlignment) {
  ModelDesc model = small_model();
  model.blocks[0].tensors[0].shape = {static_cast<int64_t>(kLeafElements),
                                      140000};  // 140000 tiles: 2.2 MB of table
  const StoreGeometry geometry(Layout(model, Schema::fp32, kLeafElements));
  EXPECT_GT(geometry.slot(0, 0).extents * 8, kDataAlign);
  EXPECT_EQ(geometry.slot(0, 0).data_offset, 2 * kDataAlign);
}

TEST(StoreBytes, ExtentHashIsOverLeavesOfEachFieldWithoutPadding) {
  const Tile tile{.block = 0,
                  .index = 0,
                  .trainable = true,
                  .first = 0,
                  .count = kLeafElements + 128,
                  .padded = kLeafElements + 2048};
  std::vector<std::byte> extent(tile.padded * 10);
  for (size_t i = 0; i < extent.size(); ++i) extent[i] = static_cast<std::byte>(i * 31 >> 3);
  std::vector<uint64_t> leaves;
  size_t field = 0;
  for (const size_t bytes : {2, 4, 4}) {
    leaves.push_back(base::xxh3(extent.data() + field, kLeafElements * bytes));
    leaves.push_back(base::xxh3(extent.data() + field + kLeafElements * bytes, 128 * bytes));
    field += tile.padded * bytes;
  }
  const uint64_t hash = hash_extent(Schema::bf16, Part::state, tile, extent);
  EXPECT_EQ(hash, base::xxh3(leaves.data(), 8 * leaves.size()));
  EXPECT_EQ(hash, extent_hash(leaves));
  extent[(kLeafElements + 128) * 2] ^= std::byte{1};  // padding of lo
  EXPECT_EQ(hash_extent(Schema::bf16, Part::state, tile, extent), hash);
  extent[(kLeafElements + 127) * 2] ^= std::byte{1};
  EXPECT_NE(hash_extent(Schema::bf16, Part::state, tile, extent), hash);
}

}  // namespace
}  // namespace sluice::offload::test
