#include "offload/layout.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"

namespace sluice::offload {
namespace {

ModelDesc small_model() {
  ModelDesc m;
  m.blocks.push_back({BlockKind::embedding, {{"embed", {300, 100}}}});
  m.blocks.push_back(
      {BlockKind::layer,
       {{"a", {100}, true}, {"b", {3, 7}, false}, {"c", {512, 300}, true, 1}, {"d", {130}, false}}});
  m.blocks.push_back({BlockKind::head, {{"norm", {100}}}});
  m.tied = true;
  return m;
}

TEST(Layout, ExtentsHaveTheBytesOfTheSchema) {
  const std::pair<uint64_t, uint64_t> expected[] = {{2, 10}, {4, 8}, {2, 12}, {2, 6}, {4, 4}, {2, 8}};
  for (const Schema schema : {Schema::bf16, Schema::fp32, Schema::fp16, Schema::bf16_lion, Schema::fp32_lion, Schema::fp16_lion}) {
    const Layout layout(small_model(), schema, kLeafElements);
    for (const Tile& tile : layout.tiles()) {
      EXPECT_EQ(layout.weights_extent_bytes(tile), expected[static_cast<size_t>(schema)].first * tile.padded);
      EXPECT_EQ(layout.state_extent_bytes(tile), expected[static_cast<size_t>(schema)].second * tile.padded);
    }
  }
}

TEST(Layout, PlacesTensorsInTwoSegmentsOfADeclaredOrder) {
  const Layout layout(small_model(), Schema::bf16, kLeafElements);
  EXPECT_EQ(layout.tensor("a").offset, 0u);
  EXPECT_EQ(layout.tensor("c").offset, 128u);
  EXPECT_EQ(layout.tensor("c").group, 1u);
  EXPECT_EQ(layout.tensor("b").offset, 0u);
  EXPECT_EQ(layout.tensor("d").offset, 128u);
  const BlockPlace& block = layout.blocks()[1];
  EXPECT_EQ(block.trainable, 128u + 153600);
  EXPECT_EQ(block.frozen, 128u + 256);
  EXPECT_EQ(block.padded_trainable(), 155648u);
  EXPECT_EQ(block.device_elements(), 155648u + 2048);
  EXPECT_EQ(layout.parameters(), 30000u + 100 + 21 + 153600 + 130 + 100);
  EXPECT_EQ(layout.trainable_elements(), 30080u + 153728 + 128);
}

TEST(Layout, CutsSegmentsIntoTiles) {
  const Layout layout(small_model(), Schema::bf16, kLeafElements);
  ASSERT_EQ(layout.tiles().size(), 1u + 3 + 1 + 1);
  const Tile& last = layout.tiles()[3];
  EXPECT_EQ(last.block, 1u);
  EXPECT_EQ(last.index, 2u);
  EXPECT_EQ(last.first, 131072u);
  EXPECT_EQ(last.count, 153728u - 131072);
  EXPECT_EQ(last.padded, 24576u);
  EXPECT_EQ(layout.leaves(last), 1u);
  EXPECT_EQ(layout.weights_extent_bytes(last), 2u * 24576);
  EXPECT_EQ(layout.state_extent_bytes(last), 10u * 24576);
  EXPECT_FALSE(layout.tiles()[4].trainable);
  EXPECT_EQ(layout.tiles()[4].index, 0u);
  EXPECT_EQ(layout.blocks()[1].frozen_tiles, std::vector<uint32_t>{4});
}

TEST(Layout, RefusesABadTileAndBadShapes) {
  EXPECT_THROW(Layout(small_model(), Schema::bf16, 0), base::Error);
  EXPECT_THROW(Layout(small_model(), Schema::bf16, kLeafElements + 128), base::Error);
  ModelDesc m = small_model();
  m.blocks[1].tensors[0].shape = {4, 0};
  EXPECT_THROW(Layout(m, Schema::bf16, kLeafElements), base::Error);
  m.blocks[1].tensors[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_THROW(Layout(m, Schema::bf16, kLeafElements), base::Error);
}

TEST(Layout, DigestCoversWhatTheStoreHoldsAndNotTheGroups) {
  const uint64_t digest = Layout(small_model(), Schema::bf16, kLeafElements).digest();
  EXPECT_EQ(digest, Layout(small_model(), Schema::bf16, kLeafElements).digest());
  EXPECT_NE(digest, Layout(small_model(), Schema::fp32, kLeafElements).digest());
  EXPECT_NE(digest, Layout(small_model(), Schema::bf16, 2 * kLeafElements).digest());
  ModelDesc m = small_model();
  m.blocks[1].tensors[0].group = 1;
  EXPECT_EQ(digest, Layout(m, Schema::bf16, kLeafElements).digest());
  m.blocks[1].tensors[0].trainable = false;
  EXPECT_NE(digest, Layout(m, Schema::bf16, kLeafElements).digest());
  m = small_model();
  std::swap(m.blocks[1].tensors[0], m.blocks[1].tensors[2]);
  EXPECT_NE(digest, Layout(m, Schema::bf16, kLeafElements).digest());
  m = small_model();
  m.blocks[1].tensors[1].shape = {7, 3};
  EXPECT_NE(digest, Layout(m, Schema::bf16, kLeafElements).digest());
}

TEST(Layout, LowestTrainableBlock) {
  ModelDesc m = small_model();
  EXPECT_EQ(Layout(m, Schema::bf16, kLeafElements).lowest_trainable_block(), 0u);
  m.blocks[0].tensors[0].trainable = false;
  EXPECT_EQ(Layout(m, Schema::bf16, kLeafElements).lowest_trainable_block(), 1u);
  for (BlockDesc& block : m.blocks)
    for (TensorDesc& t : block.tensors) t.trainable = false;
  EXPECT_FALSE(Layout(m, Schema::bf16, kLeafElements).lowest_trainable_block().has_value());
}

// Over any number of ranks. Shards are even, and every tile has one owner.
RC_GTEST_PROP(LayoutProperty, TilesCoverEachSegmentOnce, ()) {
  ModelDesc m;
  const int layers = *rc::gen::inRange(1, 4);
  for (int b = 0; b < layers + 2; ++b) {
    BlockDesc block{b == 0 ? BlockKind::embedding : b == layers + 1 ? BlockKind::head : BlockKind::layer, {}};
    const int tensors = *rc::gen::inRange(1, 6);
    for (int t = 0; t < tensors; ++t)
      block.tensors.push_back({fmt::format("t{}.{}", b, t),
                               {*rc::gen::inRange<int64_t>(1, 400), *rc::gen::inRange<int64_t>(1, 900)},
                               *rc::gen::arbitrary<bool>()});
    m.blocks.push_back(block);
  }
  const uint64_t tile = kLeafElements * *rc::gen::inRange<uint64_t>(1, 4);
  const auto world = *rc::gen::element(1u, 2u, 3u, 8u);
  const Layout layout(m, Schema::fp32, tile, world);
  size_t seen = 0;
  for (const BlockPlace& block : layout.blocks()) {
    for (bool trainable : {true, false}) {
      const uint64_t length = trainable ? block.trainable : block.frozen;
      const uint64_t shard = trainable ? block.trainable_shard : block.frozen_shard;
      RC_ASSERT(shard % kExtentAlign == 0 && shard * world >= length);
      RC_ASSERT(shard * world < length + world * kExtentAlign);
      uint64_t next = 0;
      for (uint32_t i : trainable ? block.trainable_tiles : block.frozen_tiles) {
        const Tile& t = layout.tiles()[i];
        RC_ASSERT(i == seen++);
        RC_ASSERT(t.first == next && t.trainable == trainable);
        RC_ASSERT(world > 1 || t.first == t.index * tile);
        RC_ASSERT(t.first / shard == t.shard && (t.first + t.count - 1) / shard == t.shard && t.shard < world);
        RC_ASSERT(t.count > 0 && t.count <= tile && t.count % kTensorAlign == 0);
        RC_ASSERT(t.padded % kExtentAlign == 0 && t.padded >= t.count && t.padded < t.count + kExtentAlign);
        next += t.count;
      }
      RC_ASSERT(next == length);
      uint64_t end = 0;
      for (const TensorPlace& t : block.tensors) {
        if (t.trainable != trainable) continue;
        RC_ASSERT(t.offset % kTensorAlign == 0 && t.offset >= end && t.offset < end + kTensorAlign);
        end = t.offset + t.count;
      }
      RC_ASSERT(next >= end && next < end + kTensorAlign);
    }
  }
  RC_ASSERT(seen == layout.tiles().size());
  RC_ASSERT(world == 1 || layout.digest() != Layout(m, Schema::fp32, tile).digest());
  const Layout one = layout.joined();
  RC_ASSERT(one.world() == 1 && one.tiles().size() == layout.tiles().size());
  for (size_t i = 0; i < one.tiles().size(); ++i)
    RC_ASSERT(one.tiles()[i].shard == 0 && one.tiles()[i].first == layout.tiles()[i].first && one.tiles()[i].count == layout.tiles()[i].count);
  for (const BlockPlace& block : one.blocks())
    RC_ASSERT(block.shard(true, 0).count == block.trainable && block.shard(false, 0).count == block.frozen);
  RC_ASSERT(layout.resized(2 * tile, 5).digest() == Layout(m, Schema::fp32, 2 * tile, 5).digest());
}

}  // namespace
}  // namespace sluice::offload
