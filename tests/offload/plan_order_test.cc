// The order of every lane against an independent model of the schedule: tests/offload/data/lane_orders.json.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "offload/plan_builder.h"
#include "tests/offload/plan_models.h"
#include "tests/paths.h"

namespace sluice::offload {
namespace {

// The model's name of an operation; empty for what it leaves out.
std::string model_name(const Plan& plan, uint32_t i, bool tied, int32_t head) {
  const Op& op = plan.ops[i];
  if (op.kind == OpKind::agree || (tied && op.block == head && op.tile >= 0)) return {};
  if (op.kind == OpKind::loss) return fmt::format("Loss.{}", op.micro);
  std::string name = plan.name(i);
  std::string kind = name.substr(0, name.find(' '));
  if (op.block < 0) return kind;
  if (op.kind == OpKind::read_weights || op.kind == OpKind::copy_in)
    kind += op.visit == Visit::backward ? "B" : op.visit == Visit::update ? "U" : "F";
  return fmt::format("{}{}.{}", kind, op.block, op.tile >= 0 ? op.tile_in_block : op.micro);
}

std::string fnv1a(const std::string& text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3u;
  return fmt::format("{:016x}", h);
}

std::string join(const std::vector<std::string>& names, size_t first, size_t last) {
  std::string text;
  for (size_t n = first; n < last; ++n) text += (n > first ? " " : "") + names[n];
  return text;
}

void compare(const Plan& plan, const nlohmann::json& expected, bool tied, int32_t head) {
  for (size_t l = 0; l < kLanes; ++l) {
    SCOPED_TRACE(to_string(static_cast<Lane>(l)));
    if (static_cast<Lane>(l) == Lane::comm) {  // the model is of one rank
      EXPECT_TRUE(plan.order[l].empty());
      continue;
    }
    const auto& lane = expected.at("lanes").at(to_string(static_cast<Lane>(l)));
    std::vector<std::string> names;
    std::string all;
    for (uint32_t i : plan.order[l])
      if (std::string name = model_name(plan, i, tied, head); !name.empty()) {
        all += name + "\n";
        names.push_back(std::move(name));
      }
    if (lane.contains("all")) {
      EXPECT_EQ(join(names, 0, names.size()), lane.at("all"));
    } else if (names.size() >= 12) {
      EXPECT_EQ(join(names, 0, 12), lane.at("first"));
      EXPECT_EQ(join(names, names.size() - 12, names.size()), lane.at("last"));
    }
    EXPECT_EQ(names.size(), lane.at("count"));
    EXPECT_EQ(fnv1a(all), lane.at("hash"));
  }
}

TEST(PlanOrder, EveryLaneEqualsTheModelOfTheSchedule) {
  std::ifstream file(source_dir() / "tests/offload/data/lane_orders.json");
  const auto fixture = nlohmann::json::parse(file);
  ASSERT_EQ(fixture.at("plans").size(), 20u);
  for (const auto& expected : fixture.at("plans")) {
    const uint64_t head = expected.at("head");
    const Layout layout(model_of(expected.at("embedding"), expected.at("layer"), head, expected.at("layers")),
                        Schema::bf16, 2 << 20);
    PlanOptions o;
    o.micro_batches = expected.at("micro_batches");
    for (Placement p : {Placement::none, Placement::forward, Placement::backward, Placement::spread})
      if (expected.at("placement") == to_string(p)) o.placement = p;
    SCOPED_TRACE(fmt::format("{} {}", expected.at("model").get<std::string>(), to_string(o.placement)));
    const Plan plan = build_train_plan(layout, o);
    compare(plan, expected, head == 0, static_cast<int32_t>(layout.blocks().size() - 1));
    EXPECT_NO_THROW(check_plan(plan));
  }
}

}  // namespace
}  // namespace sluice::offload
