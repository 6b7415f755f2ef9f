// Where bytes live and when they move never changes a bit: losses, norms and the trained state are compared between runs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/engine/tiny_run.h"

namespace sluice::engine {
namespace {

using offload::Durable;
using offload::Tier;

// What decides the numbers; everything else must not.
struct Numbers {
  std::string model;
  uint32_t accumulation;
  std::vector<std::string> trainable;
  auto operator<=>(const Numbers&) const = default;
};

struct Tiers {
  Tier weights, state;
  Durable durable;
};
const std::vector<Tiers> kTiers{
    {Tier::none, Tier::none, Durable::checkpoint}, {Tier::none, Tier::cpu, Durable::checkpoint}, {Tier::none, Tier::cpu, Durable::step},
    {Tier::none, Tier::nvme, Durable::step},       {Tier::cpu, Tier::cpu, Durable::step},        {Tier::cpu, Tier::cpu, Durable::none},
    {Tier::cpu, Tier::nvme, Durable::step},        {Tier::nvme, Tier::cpu, Durable::step},       {Tier::nvme, Tier::nvme, Durable::step},
    {Tier::nvme, Tier::nvme, Durable::checkpoint}, {Tier::nvme, Tier::cpu, Durable::checkpoint}, {Tier::nvme, Tier::nvme, Durable::none}};
const std::vector<uint64_t> kTile{65536, 131072, 2 << 20};
const std::vector<offload::PoolSizes> kPools{{}, {.weights = 8, .state = 1, .gradients = 0, .device_slots = 1}, {.weights = 12, .state = 3, .gradients = 0, .device_slots = 3}};
const std::vector<io::QueueKind> kQueues{io::QueueKind::threads, io::QueueKind::uring};
const std::vector<Numbers> kNumbers{
    {"tied", 1, {"*"}},   {"tied", 4, {"*"}},   {"untied", 1, {"*"}}, {"untied", 4, {"*"}},
    {"tied", 4, {"model.layers.1.*", "model.norm.weight"}},
    {"untied", 1, {"*layers*proj.weight"}},
    {"tied", 1, {"model.embed_tokens.weight", "model.layers.0.*"}},
    {"untied", 4, {"*layers.1.*", "*norm*", "lm_head.weight"}},
    {"gpt2_hub", 1, {"*"}},  // with dropout
    {"gpt2_hub", 4, {"*"}},
    {"gpt2_hub", 4, {"wpe.weight", "h.1.*", "ln_f.bias"}},
};

const std::vector<offload::Placement> kPlacements{offload::Placement::none, offload::Placement::forward, offload::Placement::backward,
                                                  offload::Placement::spread};
const std::vector<uint64_t> kPinned{0, 3 << 20, 1 << 30};

// Level i of each factor; a row of the array is one run.
using Row = std::vector<size_t>;
const Row kLevels{kTiers.size(), kTile.size(), kPools.size(), kQueues.size(), 2, 3, kNumbers.size(), kPlacements.size(), kPinned.size(), 2};

TinyRun run_of(const Row& row) {
  TinyRun run;
  run.weights = kTiers[row[0]].weights;
  run.state = kTiers[row[0]].state;
  run.durable = kTiers[row[0]].durable;
  run.tile = kTile[row[1]];
  run.pools = kPools[row[2]];
  run.queue = kQueues[row[3]];
  run.optimizer_threads = static_cast<int>(row[4]) + 1;
  run.keep_weights = row[5] == 1 ? 1 : 0;
  run.keep_graphs = row[5] == 2 ? 1 : 0;
  run.placement = kPlacements[row[7]];
  run.pinned = kPinned[row[8]];
  run.host_boundaries = row[9] == 1;
  run.clip = kTinyClip;
  run.model = kNumbers[row[6]].model;
  run.accumulation = kNumbers[row[6]].accumulation;
  run.trainable = kNumbers[row[6]].trainable;
  return run;
}

const TinyResult& reference(const Row& row) {
  static std::map<size_t, TinyResult> known;
  const auto it = known.find(row[6]);
  if (it != known.end()) return it->second;
  Row plain(row.size(), 0);
  plain[6] = row[6];
  return known[row[6]] = run_tiny(run_of(plain));
}

void expect_equal(const TinyResult& got, const TinyResult& expected) {
  EXPECT_EQ(got.losses, expected.losses);
  EXPECT_EQ(got.norms, expected.norms);
  EXPECT_EQ(got.eval_losses, expected.eval_losses);
  EXPECT_EQ(got.digest.weights, expected.digest.weights);
  EXPECT_EQ(got.digest.state, expected.digest.state);
}

void expect_same(const Row& row) {
  const TinyResult& expected = reference(row);
  const TinyResult got = run_tiny(run_of(row));
  expect_equal(got, expected);
  EXPECT_LE(got.device_peak, got.device_planned);
}

std::string text(const Row& row) {
  std::string s;
  for (size_t level : row) s += std::to_string(level) + " ";
  return s;
}

// Rows that hold every pair of levels of every two factors; greedy, deterministic.
std::vector<Row> pairwise(const Row& levels) {
  std::map<std::vector<size_t>, bool> open;  // (factor a, level, factor b, level)
  for (size_t a = 0; a < levels.size(); ++a)
    for (size_t b = a + 1; b < levels.size(); ++b)
      for (size_t i = 0; i < levels[a]; ++i)
        for (size_t j = 0; j < levels[b]; ++j) open[{a, i, b, j}] = true;
  const auto covers = [&](const Row& row) {
    std::vector<std::vector<size_t>> pairs;
    for (size_t a = 0; a < row.size(); ++a)
      for (size_t b = a + 1; b < row.size(); ++b)
        if (open.contains({a, row[a], b, row[b]})) pairs.push_back({a, row[a], b, row[b]});
    return pairs;
  };
  std::mt19937 random(7);
  std::vector<Row> rows;
  while (!open.empty()) {
    Row best;
    size_t most = 0;
    for (int attempt = 0; attempt < 200; ++attempt) {
      Row row;
      for (size_t n : levels) row.push_back(random() % n);
      const auto& seed = open.begin()->first;
      row[seed[0]] = seed[1];
      row[seed[2]] = seed[3];
      if (const size_t n = covers(row).size(); n > most) most = n, best = row;
    }
    for (const auto& pair : covers(best)) open.erase(pair);
    rows.push_back(best);
  }
  return rows;
}

TEST(Exactness, EveryPairOfChoicesGivesTheSameBits) {
  for (const Row& row : pairwise(kLevels)) {
    SCOPED_TRACE(text(row));
    ASSERT_NO_THROW(expect_same(row));
    if (HasFailure()) return;
  }
}

// Which layers keep weights or graphs, when the optimizer works, and what is pinned go along with the others instead of multiplying them.
TEST(Exactness, SlowEveryCombinationGivesTheSameBits) {
  Row levels = kLevels;
  levels[5] = levels[7] = levels[8] = levels[9] = 1;
  Row row(levels.size(), 0);
  for (size_t n = 0;; ++n) {
    Row with_others = row;
    with_others[5] = n % kLevels[5];
    with_others[7] = n / kLevels[5] % kLevels[7];
    with_others[8] = n / (kLevels[5] * kLevels[7]) % kLevels[8];
    SCOPED_TRACE(text(with_others));
    ASSERT_NO_THROW(expect_same(with_others));
    if (HasFailure()) return;
    size_t i = 0;
    while (i < row.size() && ++row[i] == levels[i]) row[i++] = 0;
    if (i == row.size()) return;
  }
}

TEST(Exactness, DifferentDataGivesDifferentBits) {  // the comparison can fail
  TinyRun a, b;
  b.accumulation = 2;
  EXPECT_NE(run_tiny(a).digest.weights, run_tiny(b).digest.weights);
}

TEST(Exactness, StoppingAndResumingChangesNothing) {
  const size_t tiers_of[] = {8, 0, 6, 9, 11, 8, 8, 8, 2, 2, 2, 4};
  for (size_t i = 0; i < std::size(tiers_of); ++i) {
    const Tiers& tiers = kTiers[tiers_of[i]];
    TinyRun run;
    run.clip = kTinyClip;
    run.placement = kPlacements[i % kPlacements.size()];
    run.weights = tiers.weights;
    run.state = tiers.state;
    run.durable = tiers.durable;
    const TinyResult whole = run_tiny(run);
    run.stops = {1, 4};
    const TinyResult parts = run_tiny(run);
    expect_equal(parts, whole);
  }
}

// Some blocks on the device with their state, the rest where the tiers say.
TEST(Exactness, AnyShareOfResidentBlocksGivesTheSameBits) {
  const Tiers tiers[] = {{Tier::none, Tier::cpu, Durable::checkpoint},
                         {Tier::none, Tier::nvme, Durable::checkpoint},
                         {Tier::cpu, Tier::cpu, Durable::checkpoint},
                         {Tier::cpu, Tier::nvme, Durable::none},
                         {Tier::nvme, Tier::cpu, Durable::checkpoint},
                         {Tier::nvme, Tier::nvme, Durable::checkpoint}};
  std::mt19937 random(11);
  const auto one_of = [&](size_t n) { return random() % n; };
  for (const char* model : {"tied", "untied"}) {
    TinyRun plain;
    plain.model = model;
    plain.clip = kTinyClip;
    plain.accumulation = 2;
    plain.eval_every = 2;
    const TinyResult expected = run_tiny(plain);
    for (const Tiers& t : tiers)
      for (const uint32_t blocks : {1u, 2u, 3u, 99u}) {
        SCOPED_TRACE(fmt::format("{} {} {} {} blocks", model, to_string(t.weights), to_string(t.state), blocks));
        TinyRun run = plain;
        run.weights = t.weights;
        run.state = t.state;
        run.durable = t.durable;
        run.resident_blocks = blocks;
        run.placement = kPlacements[one_of(kPlacements.size())];
        run.opaque = one_of(2) == 1;  // a device that the host cannot address
        run.host_boundaries = one_of(2) == 1;
        const size_t kept = one_of(3);
        run.keep_graphs = kept == 2 ? 1 : 0;
        run.keep_weights = kept == 1 ? 1 : 0;
        run.pinned = one_of(3) == 0 ? 3 << 20 : 0;
        if (one_of(3) == 0) run.stops = {1, 3};
        if (t.durable == Durable::checkpoint && one_of(3) == 0) run.adjust = [](TrainerOptions& o) { o.commit_every = 2; };
        const TinyResult got = run_tiny(run);
        expect_equal(got, expected);
        EXPECT_LE(got.device_peak, got.device_planned);
        if (HasFailure()) return;
      }
  }
}

// Frozen tensors of a resident block lie on the device too; they are read once.
TEST(Exactness, ResidentBlocksMayBeFrozen) {
  TinyRun run;
  run.trainable = {"model.layers.1.*", "model.norm.weight"};
  const TinyResult expected = run_tiny(run);
  run.weights = run.state = Tier::nvme;
  for (const uint32_t blocks : {1u, 2u, 3u}) {
    run.resident_blocks = blocks;
    const TinyResult got = run_tiny(run);
    expect_equal(got, expected);
  }
}

// Updates on a guess that only shadows in RAM can take back: of all tiles, or of the last ones.
TEST(Exactness, ShadowsGiveTheSameBits) {
  size_t n = 0;
  for (const char* model : {"tied", "untied"}) {
    TinyRun plain;
    plain.model = model;
    plain.clip = kTinyClip;
    plain.steps = 8;
    plain.eval_every = 3;
    const TinyResult expected = run_tiny(plain);
    const auto clipped = static_cast<uint64_t>(std::count_if(expected.clips.begin(), expected.clips.end(), [](double clip) { return clip != 1.0; }));
    ASSERT_GT(clipped, 0u);
    for (const Tier weights : {Tier::cpu, Tier::none})
      for (const auto placement : {offload::Placement::backward, offload::Placement::spread})
        for (const uint64_t shadow : {uint64_t{1} << 30, uint64_t{3} << 20}) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", model, to_string(weights), to_string(placement), shadow));
          TinyRun run = plain;
          run.weights = weights;
          run.state = Tier::cpu;
          run.durable = n % 2 == 0 ? Durable::checkpoint : Durable::none;
          run.placement = placement;
          run.shadow = shadow;
          run.opaque = n % 3 == 1;
          run.resident_blocks = n % 4 == 3 ? 1 : 0;
          if (n % 3 == 2) run.stops = {2, 5};
          ++n;
          const TinyResult got = run_tiny(run);
          expect_equal(got, expected);
          EXPECT_EQ(got.redone, clipped);
          if (HasFailure()) return;
        }
  }
}

// On two file systems where there are two: a queue for each.
TEST(Exactness, SeveralDrivesGiveTheSameBits) {
  TinyRun run;
  const TinyResult expected = run_tiny(run);
  run.weights = run.state = Tier::nvme;
  run.durable = Durable::step;
  for (const io::QueueKind queue : kQueues)
    for (const std::vector<double>& rates : {std::vector<double>{3, 1}, std::vector<double>{1, 20}, std::vector<double>{}}) {
      SCOPED_TRACE(rates.empty() ? 0 : rates[0]);
      const TemporaryFolder first;
      const std::filesystem::path second = std::filesystem::path("/dev/shm") / ("sluice-drive-" + first.path.filename().string());
      std::filesystem::create_directory(second);
      run.queue = queue;
      run.stops = {2};
      run.adjust = [&](TrainerOptions& o) {
        o.store.paths = o.runtime.drives = {first.path, second};
        o.store.drive_rates = rates;
      };
      expect_equal(run_tiny(run), expected);
      std::filesystem::remove_all(second);
      if (HasFailure()) return;
    }
}

TEST(Exactness, EvaluatingOnTheWayChangesNothing) {
  TinyRun run;
  run.weights = run.state = Tier::nvme;
  run.durable = Durable::step;
  const TinyResult plain = run_tiny(run);
  run.eval_every = 2;
  TinyResult evaluated;
  for (const offload::Placement placement : kPlacements) {
    run.placement = placement;
    evaluated = run_tiny(run);
    EXPECT_EQ(evaluated.losses, plain.losses);
    EXPECT_EQ(evaluated.digest.weights, plain.digest.weights);
    ASSERT_EQ(evaluated.eval_losses.size(), 2u);
  }
  run.weights = run.state = Tier::none;
  run.durable = Durable::checkpoint;
  EXPECT_EQ(run_tiny(run).eval_losses, evaluated.eval_losses);
}

// "all" is a very large number of layers.
TEST(Exactness, AllGraphsMayBeKeptWhileInputsAreOnTheHost) {
  TinyRun run;
  run.accumulation = 2;
  const TinyResult plain = run_tiny(run);
  run.host_boundaries = true;
  run.keep_graphs = UINT32_MAX;
  const TinyResult kept = run_tiny(run);
  expect_equal(kept, plain);
  EXPECT_LE(kept.device_peak, kept.device_planned);
}

TEST(Exactness, CommittingOnTheWayChangesNothing) {
  TinyRun run;
  const TinyResult plain = run_tiny(run);
  for (const Tiers& tiers : {kTiers[0], kTiers[1], kTiers[9], kTiers[10]}) {
    run.weights = tiers.weights;
    run.state = tiers.state;
    run.durable = tiers.durable;
    run.placement = run.placement == kPlacements[0] ? kPlacements[1] : kPlacements[0];
    run.adjust = [](TrainerOptions& o) { o.commit_every = 2; };
    const TinyResult committed = run_tiny(run);
    expect_equal(committed, plain);
  }
}

// What a GPU asks of the engine: registered host memory, optimizer on the device, state through staging buffers.
TEST(Exactness, ADeviceThatTheHostCannotAddressGivesTheSameBits) {
  for (const bool fp32 : {false, true}) {
    TinyRun run;
    run.clip = kTinyClip;
    run.accumulation = 2;
    run.model = fp32 ? "tied_fp32" : "tied";
    run.schema = fp32 ? offload::Schema::fp32 : offload::Schema::bf16;
    run.eval_every = 2;
    const TinyResult expected = run_tiny(run);
    run.opaque = true;
    run.stops = {2};
    for (const size_t tiers : {0, 1, 3, 4, 8}) {
      SCOPED_TRACE(tiers);
      run.weights = kTiers[tiers].weights;
      run.state = kTiers[tiers].state;
      run.durable = kTiers[tiers].durable;
      run.placement = kPlacements[tiers % kPlacements.size()];
      const TinyResult got = run_tiny(run);
      expect_equal(got, expected);
      EXPECT_LE(got.device_peak, got.device_planned);
    }
  }
}

TEST(Exactness, Fp32RunsGiveTheSameBitsInEveryTier) {
  TinyRun run;
  run.model = "tied_fp32";
  run.schema = offload::Schema::fp32;
  const TinyResult expected = run_tiny(run);
  for (const Tiers& tiers : {kTiers[4], kTiers[8], kTiers[3]}) {
    run.weights = tiers.weights;
    run.state = tiers.state;
    run.durable = tiers.durable;
    const TinyResult got = run_tiny(run);
    expect_equal(got, expected);
  }
}

TEST(Exactness, LionGivesTheSameBitsWhereverItsStateIs) {
  TinyRun run;
  run.clip = kTinyClip;
  const TinyResult adam = run_tiny(run);
  for (const auto schema : {offload::Schema::bf16_lion, offload::Schema::fp16_lion}) {
    TinyRun lion;
    lion.schema = schema;
    lion.clip = kTinyClip;
    const TinyResult expected = run_tiny(lion);
    EXPECT_NE(expected.losses, adam.losses);
    EXPECT_LT(expected.losses.back(), expected.losses.front());
    const auto expect_same = [&](const TinyRun& other, const char* what) {
      SCOPED_TRACE(what);
      expect_equal(run_tiny(other), expected);
    };
    for (const Tiers& tiers : {kTiers[4], kTiers[8]})
      for (const auto placement : {offload::Placement::none, offload::Placement::spread}) {
        lion.weights = tiers.weights;
        lion.state = tiers.state;
        lion.durable = tiers.durable;
        lion.placement = placement;
        expect_same(lion, "tiers");
      }
    lion.stops = {2, 4};
    expect_same(lion, "resumed");
    TinyRun opaque;
    opaque.schema = schema;
    opaque.clip = kTinyClip;
    opaque.opaque = true;
    expect_same(opaque, "on a device");
  }
}

}  // namespace
}  // namespace sluice::engine
