#include <gmock/gmock.h>
#include <torch/torch.h>

#include <set>

#include <lockstep/base/error.h>
#include <lockstep/data/loader.h>
#include <lockstep/data/sampler.h>
#include <lockstep/data/webdataset.h>

#include "data/recorder.h"
#include "support/expect_error.h"
#include "support/tar_text.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using test::batches_of;
using test::expect_error;
using test::resumes_anywhere;
using test::tar_end;
using test::tar_member;
using test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using Names = std::vector<std::string>;

/// Shards s0.tar, s1.tar, ... of so many samples; sample 3 of shard 1 is "1/3", of class 3.
class Shards {
 public:
  explicit Shards(const std::vector<int>& sizes) : count_(sizes.size()) {
    for (std::size_t shard = 0; shard < sizes.size(); ++shard) {
      std::string archive;
      for (int i = 0; i < sizes[shard]; ++i) {
        const std::string key = std::to_string(shard) + "/" + std::to_string(i);
        archive +=
            tar_member(key + ".txt", "sample " + key) + tar_member(key + ".cls", std::to_string(i) + "\n");
      }
      folder_.file("s" + std::to_string(shard) + ".tar", archive + tar_end());
    }
  }
  std::string pattern() const {
    return (folder_ / ("s{0.." + std::to_string(count_ - 1) + "}.tar")).string();
  }
  std::filesystem::path path(int shard) const { return folder_ / ("s" + std::to_string(shard) + ".tar"); }

 private:
  TemporaryFolder folder_;
  std::size_t count_;
};

std::string key_of(const WebSample& sample) { return sample.key(); }

Names joined(const std::vector<Names>& batches) {
  Names all;
  for (const Names& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

class WebDatasetWithWorkers : public ::testing::TestWithParam<int> {
 protected:
  auto keys(const Shards& shards, const WebDatasetOptions& options = {}, std::int64_t batch_size = 2) const {
    return loader(web_dataset(shards.pattern(), key_of, options),
                  {.batch_size = batch_size, .num_workers = GetParam()});
  }
};
INSTANTIATE_TEST_SUITE_P(Workers, WebDatasetWithWorkers, ::testing::Values(0, 2));

TEST_P(WebDatasetWithWorkers, GivesTheSamplesOfAllShardsInOrder) {
  const Shards shards({2, 0, 3});
  const auto samples = keys(shards);
  EXPECT_THAT(batches_of(samples), ElementsAre(Names{"0/0", "0/1"}, Names{"2/0", "2/1"}, Names{"2/2"}));
  EXPECT_EQ(samples.num_batches(), kUnknownLength);
  EXPECT_TRUE(resumes_anywhere(samples));
}

TEST_P(WebDatasetWithWorkers, DealsShardsOutToRanks) {
  const Shards shards({2, 1, 3});
  const auto samples = keys(shards, {}, 10);
  EXPECT_THAT(batches_of(samples, 0, {.num_replicas = 2, .rank = 0}),
              ElementsAre(Names{"0/0", "0/1", "2/0", "2/1", "2/2"}));
  EXPECT_THAT(batches_of(samples, 0, {.num_replicas = 2, .rank = 1}), ElementsAre(Names{"1/0"}));
  expect_error<DataError>([&] { samples.epoch(0, {.num_replicas = 4}); },
                          {"fewer shards", "4 ranks", "got 3"});
  EXPECT_TRUE(batches_of(samples, 0, {.num_replicas = 4, .rank = 3, .pad = false}).empty());
}

TEST_P(WebDatasetWithWorkers, ShufflesByEpochAndSeedAlone) {
  const Shards shards({5, 6, 7, 8});
  const auto samples = keys(shards, {.shuffle_shards = true, .shuffle_buffer = 4}, 3);
  const auto in_order = joined(batches_of(keys(shards)));
  const auto first = joined(batches_of(samples, 0, {.seed = 1}));
  EXPECT_NE(first, in_order);
  EXPECT_THAT(first, ::testing::UnorderedElementsAreArray(in_order));
  EXPECT_EQ(joined(batches_of(samples, 0, {.seed = 1})), first);
  EXPECT_NE(joined(batches_of(samples, 1, {.seed = 1})), first);
  EXPECT_NE(joined(batches_of(samples, 0, {.seed = 2})), first);
  const ShardSpec second{.num_replicas = 2, .rank = 1, .seed = 1};
  EXPECT_TRUE(resumes_anywhere(samples, 0, second));
  EXPECT_TRUE(resumes_anywhere(samples, 1, second));
  const auto other_workers =
      loader(web_dataset(shards.pattern(), key_of, {.shuffle_shards = true, .shuffle_buffer = 4}),
             {.batch_size = 3});
  EXPECT_EQ(batches_of(samples, 1, second), batches_of(other_workers, 1, second));
}

TEST_P(WebDatasetWithWorkers, SharesShuffledShardsBetweenRanks) {
  const Shards shards({1, 1, 1, 1, 1});
  const auto samples = keys(shards, {.shuffle_shards = true}, 1);
  Names order;
  for (const auto index : random_permutation(5, 3 + 2)) order.push_back(std::to_string(index) + "/0");
  Names even;
  Names odd;
  for (std::size_t i = 0; i < order.size(); ++i) (i % 2 == 0 ? even : odd).push_back(order[i]);
  EXPECT_THAT(joined(batches_of(samples, 2, {.num_replicas = 2, .rank = 0, .seed = 3})),
              ElementsAreArray(even));
  EXPECT_THAT(joined(batches_of(samples, 2, {.num_replicas = 2, .rank = 1, .seed = 3})),
              ElementsAreArray(odd));
}

TEST_P(WebDatasetWithWorkers, StacksExamples) {
  const Shards shards({3});
  const auto decode = [](const WebSample& sample) {
    return Example{.data = torch::full({2}, static_cast<double>(sample.text("txt").size())),
                   .target = torch::tensor(sample.integer("cls"))};
  };
  const Loader<Example> samples =
      loader(web_dataset(shards.pattern(), decode), {.batch_size = 3, .num_workers = GetParam()});
  const auto batches = batches_of(samples);
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_TRUE(batches[0].data.equal(torch::full({3, 2}, 10.0)));
  EXPECT_TRUE(batches[0].target.equal(torch::tensor({0, 1, 2}, torch::kLong)));
}

TEST(WebDataset, DecodesNothingOfWhatIsSkipped) {
  const Shards shards({10});
  std::atomic<int> decoded = 0;
  const auto count = [&](const WebSample& sample) {
    ++decoded;
    return sample.key();
  };
  const auto samples = loader(web_dataset(shards.pattern(), count, {.shuffle_buffer = 5}), {.batch_size = 2});
  EXPECT_EQ(batches_of(samples, 0, {}, 4).size(), 1u);
  EXPECT_EQ(decoded, 2);
}

TEST(WebDataset, SaysWhereASampleIs) {
  const Shards shards({3});
  const auto samples = loader(web_dataset(shards.pattern(), [](const WebSample& sample) { return sample; }),
                              {.batch_size = 3});
  const WebSample sample = batches_of(samples)[0].at(2);
  EXPECT_EQ(sample.shard(), shards.path(0));
  EXPECT_EQ(sample.offset(), 2u * 2 * 1024);
  EXPECT_THAT(sample.extensions(), ElementsAre("txt", "cls"));
  EXPECT_TRUE(sample.contains("cls"));
  EXPECT_FALSE(sample.contains("jpg"));
  EXPECT_EQ(sample.text("txt"), "sample 0/2");
  expect_error<DataError>([&] { sample.bytes("jpg"); }, {"'.jpg'", "0/2", "s0.tar", "byte 4096", "txt, cls"});
  expect_error<DataError>([&] { sample.integer("txt"); },
                          {"'.txt'", "0/2", "no whole number", "'sample 0/2'"});
}

TEST(WebDataset, TakesSeveralPatterns) {
  const Shards shards({1, 1, 1});
  const auto both = web_dataset(shards.path(2).string() + "::" + shards.path(0).string(), key_of);
  EXPECT_THAT(both->shards(), ElementsAre(shards.path(2), shards.path(0)));
}

TEST(WebDataset, NamesShardsThatAreMissingOrDamaged) {
  const Shards shards({2, 2});
  expect_error<DataError>([&] { web_dataset(shards.path(7).string(), key_of); }, {"s7.tar", "no shard"});
  expect_error<ConfigError>([&] { web_dataset("x{0..", key_of); }, {"x{0..", "not closed"});
  expect_error<ConfigError>([&] { web_dataset(shards.pattern(), key_of, {.shuffle_buffer = -1}); },
                            {"got -1"});
  std::filesystem::resize_file(shards.path(1), 1500);
  const auto samples = loader(web_dataset(shards.pattern(), key_of), {.batch_size = 1});
  expect_error<DataError>([&] { batches_of(samples); },
                          {"s1.tar", "cannot be read", "cut short within a header at byte 1024"});
}

TEST_P(WebDatasetWithWorkers, IsNotShuffledWhereItIsToBeInOrder) {
  const Shards shards({3, 3, 3});
  const auto shuffled = keys(shards, {.shuffle_shards = true, .shuffle_buffer = 4});
  const auto in_order = joined(batches_of(keys(shards)));
  for (const std::int64_t epoch : {0, 1})
    EXPECT_EQ(joined(batches_of(shuffled, epoch, {.in_order = true})), in_order);
}

}  // namespace
}  // namespace lockstep
