#include "offload/fluid_rates.h"

#include <gtest/gtest.h>

#include "tests/offload/simulated_machines.h"

namespace sluice::offload {
namespace {

constexpr size_t at(Lane l) {
  return static_cast<size_t>(l);
}

LaneCounts counts(std::initializer_list<std::pair<Lane, uint32_t>> list) {
  LaneCounts c{};
  for (const auto& [lane, n] : list) c[at(lane)] = n;
  return c;
}

double bound(const std::vector<Bound>& all, Resource resource) {
  for (const Bound& b : all)
    if (b.resource == resource) return b.seconds;
  return 0;
}

TEST(FluidRates, ALaneAloneHasItsRateSharedByItsOperations) {
  FluidRates rates(round_machine());
  EXPECT_DOUBLE_EQ(rates.of(counts({{Lane::disk_state, 4}}))[at(Lane::disk_state)], 0.5e9);
  EXPECT_DOUBLE_EQ(rates.of(counts({{Lane::h2d, 1}}))[at(Lane::h2d)], 10e9);
  EXPECT_DOUBLE_EQ(rates.of(counts({{Lane::compute, 1}}))[at(Lane::compute)], 1e12);
  EXPECT_DOUBLE_EQ(rates.of(counts({{Lane::update, 1}}))[at(Lane::update)], 26e9);
}

TEST(FluidRates, ReadsAndWritesTogetherShareTheMixedRate) {
  FluidRates rates(round_machine());
  // Three operations at 2.5 GB/s are 0.83 each, but the writes reach no more than 1 GB/s in sum: 0.5; the
  // read gets the rest.
  const auto r = rates.of(counts({{Lane::disk_weights, 1}, {Lane::disk_write_state, 2}}));
  EXPECT_DOUBLE_EQ(r[at(Lane::disk_write_state)], 0.5e9);
  EXPECT_DOUBLE_EQ(r[at(Lane::disk_weights)], 1.5e9);
}

TEST(FluidRates, ADiskThatIsSlowerMixedThanAloneSlowsOnlyTheMixture) {
  Machine m = round_machine();
  m.disk_mixed = 0.8e9;
  FluidRates rates(m);
  EXPECT_DOUBLE_EQ(rates.of(counts({{Lane::disk_weights, 1}}))[at(Lane::disk_weights)], 2e9);
  const auto r = rates.of(counts({{Lane::disk_weights, 1}, {Lane::disk_write_state, 1}}));
  EXPECT_DOUBLE_EQ(r[at(Lane::disk_weights)], 0.4e9);
  EXPECT_DOUBLE_EQ(r[at(Lane::disk_write_state)], 0.4e9);
}

TEST(FluidRates, CopiesBothWaysShareWhatTheLinkHasForBoth) {
  Machine m = round_machine();
  const LaneCounts in = counts({{Lane::h2d, 1}}), both = counts({{Lane::h2d, 1}, {Lane::d2h, 1}});
  EXPECT_DOUBLE_EQ(FluidRates(m).of(both)[at(Lane::d2h)], 10e9);  // not known: one does not slow the other
  m.copy_both = 16e9;
  FluidRates rates(m);
  EXPECT_DOUBLE_EQ(rates.of(in)[at(Lane::h2d)], 10e9);
  EXPECT_DOUBLE_EQ(rates.of(both)[at(Lane::h2d)], 8e9);
  EXPECT_DOUBLE_EQ(rates.of(both)[at(Lane::d2h)], 8e9);
  LaneAmounts work{};
  work[at(Lane::h2d)] = work[at(Lane::d2h)] = 16e9;
  EXPECT_EQ(bounds(m, work).front().resource, Resource::copies);
  EXPECT_DOUBLE_EQ(bounds(m, work).front().seconds, 2);
}

TEST(FluidRates, DramIsSharedMaxMin) {
  Machine m = round_machine();
  m.dram = 30e9;
  m.h2d = 20e9;
  FluidRates rates(m);
  // 30 among three: the disk takes its 2, the copy and Adam 14 each.
  const auto r = rates.of(counts({{Lane::disk_state, 1}, {Lane::h2d, 1}, {Lane::update, 1}}));
  EXPECT_DOUBLE_EQ(r[at(Lane::disk_state)], 2e9);
  EXPECT_DOUBLE_EQ(r[at(Lane::h2d)], 14e9);
  EXPECT_DOUBLE_EQ(r[at(Lane::update)], 14e9);
}

TEST(FluidRates, SharedCoresSlowComputeAndAdamAlike) {
  Machine m = round_machine();
  m.compute_cores = 1;
  m.update_cores = .5;
  FluidRates rates(m);
  const auto alone = rates.of(counts({{Lane::update, 1}}));
  EXPECT_DOUBLE_EQ(alone[at(Lane::update)], 26e9);
  const auto both = rates.of(counts({{Lane::compute, 1}, {Lane::update, 1}}));
  EXPECT_NEAR(both[at(Lane::compute)], 1e12 / 1.5, 1);
  EXPECT_NEAR(both[at(Lane::update)], 26e9 / 1.5, 1);
}

TEST(Bounds, SayWhatEachResourceNeedsLongestFirst) {
  LaneAmounts work{};
  work[at(Lane::disk_state)] = 2e9;
  work[at(Lane::h2d)] = 40e9;
  work[at(Lane::compute)] = 3e12;
  work[at(Lane::update)] = 26e9;
  const auto all = bounds(round_machine(), work);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].resource, Resource::h2d);
  EXPECT_DOUBLE_EQ(all[0].seconds, 4);
  EXPECT_DOUBLE_EQ(bound(all, Resource::disk), 1);
  EXPECT_DOUBLE_EQ(bound(all, Resource::compute), 3);
  EXPECT_DOUBLE_EQ(bound(all, Resource::update), 1);
  EXPECT_DOUBLE_EQ(bound(all, Resource::dram), 68. / 50);
  EXPECT_EQ(bound(all, Resource::d2h), 0);
  LaneAmounts slow_commit = work;
  slow_commit[at(Lane::commit)] = 100;
  EXPECT_EQ(bounds(round_machine(), slow_commit)[0].resource, Resource::commit);
}

TEST(Bounds, TheDiskTakesTurnsWhereThatIsBest) {
  const auto disk = [](const Machine& m, double read, double written) {
    LaneAmounts work{};
    work[at(Lane::disk_state)] = read * 1e9;
    work[at(Lane::disk_write_state)] = written * 1e9;
    return bound(bounds(m, work), Resource::disk);
  };
  Machine m = round_machine();
  EXPECT_NEAR(disk(m, 3, 2), 2, 1e-12);  // 1.5 + 1 = 2.5 together
  EXPECT_NEAR(disk(m, 4, 0), 2, 1e-12);
  EXPECT_NEAR(disk(m, 0, 3), 3, 1e-12);
  EXPECT_NEAR(disk(m, 4, 1), 2, 1e-12);  // 2 + 0.5 together
  m.disk_mixed = 0.8e9;                  // better one after the other
  EXPECT_NEAR(disk(m, 2, 1), 2, 1e-12);
  m.disk_mixed = 0;  // unknown: they do not disturb each other
  EXPECT_NEAR(disk(m, 2, 1), 1, 1e-12);
}

}  // namespace
}  // namespace sluice::offload
