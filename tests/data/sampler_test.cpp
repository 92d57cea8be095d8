// The samplers against what PyTorch and Lightning gave (golden_sampler.json).
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include <lockstep/base/error.h>
#include <lockstep/data/sampler.h>
#include <nlohmann/json.hpp>

#include "data/recorder.h"
#include "data/sha256.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace lockstep {
namespace {

using nlohmann::json;
using test::Indices;

const json& golden() {
  static const json file = json::parse(std::ifstream(test::in_repository("tests/data/golden_sampler.json")));
  return file;
}

/// Compares with a whole list, or with the length, ends and fingerprint of a long one.
void expect_indices(const json& expected, const Indices& actual) {
  if (expected.is_array()) {
    EXPECT_EQ(actual, expected.get<Indices>());
    return;
  }
  ASSERT_EQ(actual.size(), expected.at("n").get<std::size_t>());
  EXPECT_EQ(Indices(actual.begin(), actual.begin() + 8), expected.at("first").get<Indices>());
  EXPECT_EQ(test::sha256(json(actual).dump()), expected.at("sha256_of_json_no_spaces").get<std::string>());
}

template <class Sampler>
Sampler sampler_of(const json& row) {
  Sampler sampler(row.at("n"), row.at("world"), row.at("rank"),
                  {.shuffle = row.value("shuffle", false),
                   .seed = row.value("seed", std::uint64_t{0}),
                   .drop_last = row.value("drop_last", false)});
  sampler.set_epoch(row.value("epoch", 0));
  return sampler;
}

TEST(Sha256, GivesTheStandardsExample) {
  EXPECT_EQ(test::sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(RandomPermutation, IsPyTorchs) {
  ASSERT_EQ(golden().at("generator_randperm").size(), 15u);
  for (const json& row : golden().at("generator_randperm")) {
    SCOPED_TRACE(row.dump());
    expect_indices(row.at("randperm"), random_permutation(row.at("n"), row.at("seed")));
  }
}

TEST(DistributedSampler, GivesPyTorchsIndices) {
  ASSERT_EQ(golden().at("distributed_sampler").size(), 480u);
  for (const json& row : golden().at("distributed_sampler")) {
    SCOPED_TRACE(row.dump());
    const auto sampler = sampler_of<DistributedSampler>(row);
    EXPECT_EQ(sampler.num_samples(), row.at("num_samples"));
    EXPECT_EQ(sampler.total_size(), row.at("total_size"));
    expect_indices(row.at("indices"), sampler.indices());
  }
}

TEST(DistributedSampler, GivesPyTorchsIndicesOfTinyDataSets) {
  ASSERT_EQ(golden().at("tiny").size(), 84u);
  for (const json& row : golden().at("tiny")) {
    SCOPED_TRACE(row.dump());
    expect_indices(row.at("indices"), sampler_of<DistributedSampler>(row).indices());
  }
}

TEST(DistributedSampler, GivesNothingOfNothing) {
  EXPECT_TRUE(DistributedSampler(0, 3, 1).indices().empty());
  EXPECT_TRUE(UnrepeatedDistributedSampler(0, 3, 1).indices().empty());
}

TEST(UnrepeatedDistributedSampler, GivesLightningsIndicesWhereItsSeedCounts) {
  int compared = 0;
  for (const json& row : golden().at("unrepeated_distributed_sampler")) {
    // Lightning forgets the seed when it shuffles; ours is seed + epoch.
    if (row.at("shuffle").get<bool>() && row.at("seed") != 0) continue;
    SCOPED_TRACE(row.dump());
    const auto sampler = sampler_of<UnrepeatedDistributedSampler>(row);
    expect_indices(row.at("indices"), sampler.indices());
    EXPECT_EQ(sampler.num_samples(), static_cast<std::int64_t>(sampler.indices().size()));
    ++compared;
  }
  EXPECT_EQ(compared, 180);
}

TEST(UnrepeatedDistributedSampler, GivesEachSampleOnceAndUsesTheSeed) {
  std::multiset<std::int64_t> seen;
  for (int rank = 0; rank < 4; ++rank) {
    const Indices mine = UnrepeatedDistributedSampler(103, 4, rank, {.seed = 7}).indices();
    EXPECT_EQ(mine.size(), rank < 3 ? 26u : 25u);
    seen.insert(mine.begin(), mine.end());
  }
  for (std::int64_t sample = 0; sample < 103; ++sample) EXPECT_EQ(seen.count(sample), 1u);
  EXPECT_NE(UnrepeatedDistributedSampler(103, 1, 0, {.seed = 7}).indices(),
            UnrepeatedDistributedSampler(103, 1, 0, {.seed = 0}).indices());
  EXPECT_EQ(UnrepeatedDistributedSampler(103, 1, 0, {.seed = 7}).indices(), random_permutation(103, 7));
}

TEST(Samplers, NameARankThatIsNone) {
  test::expect_error<ConfigError>([] { DistributedSampler(10, 2, 2); }, {"rank 2 of 2"});
  test::expect_error<ConfigError>([] { DistributedSampler(10, 0, 0); }, {"rank 0 of 0"});
  test::expect_error<ConfigError>([] { UnrepeatedDistributedSampler(10, 2, -1); }, {"rank -1 of 2"});
  test::expect_error<ConfigError>([] { DistributedSampler(-1, 1, 0); }, {"-1"});
}

}  // namespace
}  // namespace lockstep
