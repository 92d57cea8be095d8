#include <gmock/gmock.h>
#include <torch/torch.h>

#include <fstream>

#include <nlohmann/json.hpp>

#include <lockstep/base/error.h>
#include <lockstep/data/combined_loader.h>
#include <lockstep/data/dataset.h>

#include "data/recorder.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace lockstep {
namespace {

using nlohmann::json;
using test::batches_of;
using test::Counter;
using test::expect_error;
using test::Indices;
using test::Recorder;
using test::resumes_anywhere;
using ::testing::ElementsAre;
using Combined = std::vector<std::optional<Indices>>;

json golden_combined_loader() {
  std::ifstream file(test::in_repository("tests/data/golden_combined.json"));
  return json::parse(file);
}

/// Loader i gives batches of one number: i * 1000 + 0, 1, ...
std::vector<Loader<Indices>> numbered(const std::vector<std::int64_t>& lengths, int num_workers) {
  std::vector<Loader<Indices>> loaders;
  for (const auto length : lengths)
    loaders.push_back(loader(std::make_shared<Recorder>(length), {.num_workers = num_workers}));
  return loaders;
}

json as_json(const std::vector<Combined>& batches) {
  json rows = json::array();
  for (const Combined& batch : batches) {
    json row = json::array();
    for (std::size_t i = 0; i < batch.size(); ++i)
      row.push_back(batch[i] ? json(1000 * i + static_cast<std::size_t>((*batch[i])[0])) : json());
    rows.push_back(row);
  }
  return rows;
}

class CombinedWithWorkers : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Workers, CombinedWithWorkers, ::testing::Values(0, 2));

TEST_P(CombinedWithWorkers, GivesWhatLightningGives) {
  const auto golden = golden_combined_loader();
  for (const auto& vector : golden.at("cases")) {
    SCOPED_TRACE(vector.dump());
    const EnumOption<CombinedMode> mode = vector.at("mode").get<std::string>();
    const auto loaders = numbered(vector.at("lengths"), GetParam());
    const auto combination = combined({.mode = mode, .limits = vector.at("limits")}, loaders);
    const auto batches = batches_of(combination);
    EXPECT_EQ(as_json(batches), vector.at("batches"));
    // Lightning gives a length, and no batch, where it cannot cycle an empty loader.
    EXPECT_EQ(combination.num_batches(), static_cast<std::int64_t>(batches.size()));
    if (!batches.empty()) {
      EXPECT_EQ(combination.num_batches(), vector.at("length").get<std::int64_t>());
    }
    EXPECT_TRUE(resumes_anywhere(combination));
  }
}

TEST_P(CombinedWithWorkers, BeginsShorterLoadersAnewInANewOrder) {
  const LoaderOptions options{.shuffle = true, .num_workers = GetParam()};
  const auto shorter = loader(std::make_shared<Recorder>(20), options);
  const auto longer = loader(std::make_shared<Recorder>(50), options);
  const auto combination = combined({.mode = CombinedMode::kMaxSizeCycle}, shorter, longer);
  const auto batches = batches_of(combination, 3);
  ASSERT_EQ(batches.size(), 50u);
  const auto part = [&](std::size_t begin, std::size_t end) {
    Indices indices;
    for (std::size_t i = begin; i < end; ++i) indices.push_back(std::get<0>(batches[i])->at(0));
    return indices;
  };
  const auto first = part(0, 20);
  const auto second = part(20, 40);
  EXPECT_EQ(first, random_permutation(20, 3));
  EXPECT_NE(first, second);
  EXPECT_THAT(second, ::testing::UnorderedElementsAreArray(first));
  EXPECT_TRUE(resumes_anywhere(combination, 3));
}

TEST(Combined, GivesBatchesOfDifferentTypes) {
  const auto pictures = loader(tensor_dataset(torch::rand({5, 2})), {.batch_size = 2});
  const auto numbers = loader(std::make_shared<Recorder>(4), {.batch_size = 3});
  const auto both = combined({.mode = CombinedMode::kMaxSize}, pictures, numbers);
  std::vector<std::pair<std::int64_t, std::size_t>> sizes;
  for (const auto& [picture, number] : both.epoch(0))
    sizes.emplace_back(picture ? picture->data.size(0) : 0, number ? number->size() : 0);
  EXPECT_THAT(sizes, ElementsAre(::testing::Pair(2, 3), ::testing::Pair(2, 1), ::testing::Pair(1, 0)));
  AnyBatch batch;
  both.any().stream({}, 0)->next(batch);
  EXPECT_EQ(batch.size(), 5);
  EXPECT_EQ(both.num_samples(), 9);
  EXPECT_EQ(both.any().batch_size(), 5);
}

TEST(Combined, ShufflesEachLoaderByItself) {
  const auto first = loader(std::make_shared<Recorder>(6), {.shuffle = true});
  const auto second = loader(std::make_shared<Recorder>(6), {.shuffle = true});
  std::set<std::pair<std::int64_t, std::int64_t>> pairs;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch)
    for (const auto& [one, other] : combined({}, first, second).epoch(epoch))
      pairs.emplace(one->at(0), other->at(0));
  EXPECT_GT(pairs.size(), 20U);
}

TEST(Combined, GivesEachRankItsPartOfEachLoader) {
  const auto loaders = numbered({4, 6}, 0);
  const auto combination = combined({.mode = CombinedMode::kMinSize}, loaders);
  const ShardSpec second{.num_replicas = 2, .rank = 1};
  EXPECT_EQ(combination.num_batches(second), 2);
  EXPECT_EQ(as_json(batches_of(combination, 0, second)), json::parse("[[1, 1001], [3, 1003]]"));
}

TEST(Combined, TakesStreamsOfUnknownLength) {
  for (const auto mode : {CombinedMode::kMinSize, CombinedMode::kMaxSizeCycle, CombinedMode::kMaxSize,
                          CombinedMode::kSequential}) {
    SCOPED_TRACE(OptionType<CombinedMode>::print(mode));
    const std::vector<Loader<Indices>> known{loader(std::make_shared<Recorder>(3)),
                                             loader(std::make_shared<Recorder>(5))};
    const std::vector<Loader<Indices>> unknown{loader(std::make_shared<Counter>(Indices{3})),
                                               loader(std::make_shared<Counter>(Indices{5}))};
    const auto streams = combined({.mode = mode}, unknown);
    EXPECT_EQ(streams.num_batches(), kUnknownLength);
    const auto batches = batches_of(streams);
    EXPECT_EQ(batches.size(), batches_of(combined({.mode = mode}, known)).size());
    EXPECT_TRUE(resumes_anywhere(streams));
  }
}

TEST(Combined, NamesWhatDoesNotFit) {
  const auto loaders = numbered({4, 6}, 0);
  expect_error<ConfigError>([&] { combined({.limits = {1}}, loaders); }, {"limits", "2", "got 1"});
  expect_error<ConfigError>([&] { combined({.limits = {1, -1}}, loaders); }, {"limit", "got -1"});
  expect_error<ConfigError>([&] { combined({}, std::vector<Loader<Indices>>()); }, {"no loaders"});
  expect_error<ConfigError>([&] { combined({.mode = "cycle"}, loaders); },
                            {"max_size_cycle", "sequential", "'cycle'"});
}

TEST(Combined, KnowsNoLengthThatAStreamHas) {
  const auto stream = loader(std::make_shared<Counter>(Indices{3}));
  const auto known = loader(std::make_shared<Recorder>(9));
  const auto length = [](CombinedOptions options, std::vector<Loader<Indices>> loaders) {
    return combined(options, loaders).num_batches();
  };
  EXPECT_EQ(length({.mode = CombinedMode::kMinSize}, {stream, known}), kUnknownLength);
  EXPECT_EQ(length({.mode = CombinedMode::kMinSize, .limits = {5, 5}}, {stream, known}), kUnknownLength);
  EXPECT_EQ(length({.mode = CombinedMode::kSequential, .limits = {5, 5}}, {stream, known}), kUnknownLength);
  EXPECT_EQ(length({.mode = CombinedMode::kMaxSize, .limits = {0, 5}}, {stream, known}), 5);
  EXPECT_EQ(length({.mode = CombinedMode::kMinSize, .limits = {0, 5}}, {stream, known}), 0);
  for (const auto mode : {CombinedMode::kMinSize, CombinedMode::kMaxSizeCycle, CombinedMode::kSequential}) {
    SCOPED_TRACE(OptionType<CombinedMode>::print(mode));
    EXPECT_TRUE(resumes_anywhere(combined({.mode = mode, .limits = {5, 4}}, std::vector{stream, known})));
  }
}

TEST(Combined, AnErrorEndsTheStream) {
  const auto failing = std::make_shared<Recorder>(3, [](auto indices) {
    if (indices[0] == 1) throw std::runtime_error("item 1");
  });
  const auto loaders = std::vector{loader(failing), loader(std::make_shared<Recorder>(5))};
  const auto stream = combined({.mode = CombinedMode::kMaxSize}, loaders).any().stream({}, 0);
  AnyBatch batch;
  EXPECT_TRUE(stream->next(batch));
  expect_error<std::runtime_error>([&] { stream->next(batch); }, {"item 1"});
  EXPECT_FALSE(stream->next(batch));
}

}  // namespace
}  // namespace lockstep
