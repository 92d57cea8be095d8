#include <gmock/gmock.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <stdexcept>
#include <thread>

#include <lockstep/base/error.h>
#include <lockstep/data/loader.h>
#include <lockstep/data/sampler.h>
#include <lockstep/data/tensor_dataset.h>
#include <lockstep/data/torch_dataset.h>

#include "support/expect_error.h"

namespace lockstep {
namespace {

using test::expect_error;
using testing::ElementsAre;
using Indices = std::vector<std::int64_t>;
using Batches = std::vector<Indices>;

/// A batch is the list of its indices; `before` runs in the thread that makes it.
class Recorder final : public Dataset<Indices> {
 public:
  using Before = std::function<void(std::span<const std::int64_t>)>;
  explicit Recorder(
      std::int64_t size, Before before = [](auto) {})
      : size_(size), before_(std::move(before)) {}

  std::int64_t size() const override { return size_; }
  Indices get_batch(std::span<const std::int64_t> indices) const override {
    ++calls_;
    before_(indices);
    return {indices.begin(), indices.end()};
  }
  int calls() const { return calls_; }

 private:
  std::int64_t size_;
  Before before_;
  mutable std::atomic<int> calls_ = 0;
};

Batches batches(const Loader<Indices>& loader, std::int64_t epoch = 0, const ShardSpec& spec = {},
                std::int64_t skip = 0) {
  Batches all;
  for (const Indices& batch : loader.epoch(epoch, spec, skip)) all.push_back(batch);
  return all;
}

class LoaderWithWorkers : public testing::TestWithParam<int> {
 protected:
  LoaderOptions options(LoaderOptions with) const {
    with.num_workers = GetParam();
    return with;
  }
};
INSTANTIATE_TEST_SUITE_P(Workers, LoaderWithWorkers, testing::Values(0, 1, 3));

TEST_P(LoaderWithWorkers, GivesBatchesInOrder) {
  const auto numbers = loader(std::make_shared<Recorder>(7), options({.batch_size = 3}));
  EXPECT_THAT(batches(numbers), ElementsAre(Indices{0, 1, 2}, Indices{3, 4, 5}, Indices{6}));
  EXPECT_EQ(numbers.num_batches(), 3);
  const auto full = loader(std::make_shared<Recorder>(7), options({.batch_size = 3, .drop_last = true}));
  EXPECT_THAT(batches(full), ElementsAre(Indices{0, 1, 2}, Indices{3, 4, 5}));
  EXPECT_EQ(full.num_batches(), 2);
}

TEST_P(LoaderWithWorkers, GivesTheSameBatchesWhateverTheWorkers) {
  // Batches take turns in being slow, so that workers overtake each other.
  const auto uneven = std::make_shared<Recorder>(1000, [](std::span<const std::int64_t> indices) {
    if (indices[0] % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  });
  const auto expected = loader(std::make_shared<Recorder>(1000), {.batch_size = 7, .shuffle = true});
  const auto actual = loader(uneven, options({.batch_size = 7, .shuffle = true}));
  for (std::int64_t epoch : {0, 1}) EXPECT_EQ(batches(actual, epoch), batches(expected, epoch));
  EXPECT_NE(batches(actual, 0), batches(actual, 1));
}

TEST_P(LoaderWithWorkers, SkipsWithoutReading) {
  const auto recorder = std::make_shared<Recorder>(100);
  const auto numbers = loader(recorder, options({.batch_size = 10, .shuffle = true}));
  const Batches all = batches(numbers, 2);
  const int calls = recorder->calls();
  EXPECT_EQ(batches(numbers, 2, {}, 7), Batches(all.begin() + 7, all.end()));
  EXPECT_EQ(recorder->calls(), calls + 3);
  EXPECT_TRUE(batches(numbers, 2, {}, 10).empty());
  EXPECT_TRUE(batches(numbers, 2, {}, 11).empty());
}

TEST_P(LoaderWithWorkers, ThrowsAnErrorInItsTurnAndEnds) {
  const auto failing = std::make_shared<Recorder>(100, [](std::span<const std::int64_t> indices) {
    if (indices[0] >= 30) throw std::runtime_error("sample " + std::to_string(indices[0]));
  });
  const std::shared_ptr<AnyLoader> any = loader(failing, options({.batch_size = 10}));
  const auto stream = any->stream({}, 0);
  AnyBatch batch;
  for (std::int64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(stream->next(batch));
    EXPECT_EQ(batch.get<Indices>()[0], 10 * i);
  }
  expect_error<std::runtime_error>([&] { stream->next(batch); }, {"sample 30"});
  EXPECT_FALSE(stream->next(batch));
}

TEST_P(LoaderWithWorkers, IsNeverTooFarAheadAndStopsWhenLeft) {
  const auto recorder = std::make_shared<Recorder>(1000);
  const auto numbers = loader(recorder, options({.prefetch_factor = 2}));
  {
    auto epoch = numbers.epoch(0);
    epoch.begin();
  }
  EXPECT_LE(recorder->calls(), 1 + 2 * GetParam());
  EXPECT_GE(recorder->calls(), 1);
}

TEST_P(LoaderWithWorkers, ReadsTensors) {
  const at::Tensor data = torch::rand({50, 3});
  const auto examples = loader(tensor_dataset(data, torch::arange(50)), options({.batch_size = 8}));
  std::vector<at::Tensor> seen;
  for (const Example& batch : examples.epoch(0)) {
    seen.push_back(batch.data);
    EXPECT_TRUE(batch.data.equal(data.index_select(0, batch.target)));
  }
  EXPECT_TRUE(torch::cat(seen).equal(data));
}

TEST(Loader, MakesBatchesInSeveralThreadsAtOnce) {
  std::latch both(2);
  const auto meeting = std::make_shared<Recorder>(2, [&](auto) {
    both.count_down();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!both.try_wait()) {
      if (std::chrono::steady_clock::now() > deadline)
        throw std::runtime_error("the other worker never came");
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(batches(loader(meeting, {.num_workers = 2})).size(), 2u);
}

TEST(Loader, GivesEachRankWhatTheSamplersSay) {
  const auto numbers = loader(std::make_shared<Recorder>(10), {.batch_size = 4, .shuffle = true});
  for (int rank = 0; rank < 3; ++rank) {
    SCOPED_TRACE(rank);
    DistributedSampler padded(10, 3, rank, {.seed = 5});
    padded.set_epoch(2);
    Indices joined;
    for (const Indices& batch : batches(numbers, 2, {.num_replicas = 3, .rank = rank, .seed = 5})) {
      joined.insert(joined.end(), batch.begin(), batch.end());
    }
    EXPECT_EQ(joined, padded.indices());
    EXPECT_EQ(batches(numbers, 0, {.num_replicas = 3, .rank = rank, .pad = false})[0],
              UnrepeatedDistributedSampler(10, 3, rank).indices());
    EXPECT_EQ(numbers.num_batches({.num_replicas = 3, .rank = rank}), 1);
  }
  const auto ordered = loader(std::make_shared<Recorder>(4), {.batch_size = 2});
  EXPECT_THAT(batches(ordered, 1, {.num_replicas = 2, .rank = 1}), ElementsAre(Indices{1, 3}));
  const auto seeded = loader(std::make_shared<Recorder>(10), {.batch_size = 10, .shuffle = true, .seed = 9});
  EXPECT_THAT(batches(seeded, 0, {.seed = 5}), ElementsAre(random_permutation(10, 9)));
}

TEST(Loader, CountsSamplesByBatchType) {
  AnyBatch batch;
  const std::shared_ptr<AnyLoader> lists = loader(std::make_shared<Recorder>(5), {.batch_size = 3});
  lists->stream({}, 0)->next(batch);
  EXPECT_EQ(batch.size(), 3);
  const std::shared_ptr<AnyLoader> examples = loader(tensor_dataset(torch::rand({5, 2})), {.batch_size = 4});
  EXPECT_EQ(examples->num_samples(), 5);
  examples->stream({}, 0, 1)->next(batch);
  EXPECT_EQ(batch.size(), 1);
  EXPECT_EQ(batch.get<Example>().data.size(0), 1);
  expect_error<ConfigError>([&] { batch.get<Indices>(); }, {"lockstep::Example", "std::vector"});
  expect_error<ConfigError>([] { AnyBatch().get<Indices>(); }, {"no batch"});
}

TEST(Loader, NamesOptionsThatAreOutOfRange) {
  const auto data = std::make_shared<Recorder>(5);
  expect_error<ConfigError>([&] { loader(data, {.batch_size = 0}); }, {"batch_size", "1 or more", "got 0"});
  expect_error<ConfigError>([&] { loader(data, {.num_workers = -1}); }, {"num_workers", "got -1"});
  expect_error<ConfigError>([&] { loader(data, {.prefetch_factor = 0}); }, {"prefetch_factor", "got 0"});
  expect_error<ConfigError>([&] { loader(std::shared_ptr<Recorder>()); }, {"null"});
  expect_error<ConfigError>([&] { loader(data).epoch(-1); }, {"epoch", "-1"});
  expect_error<ConfigError>([&] { loader(data).num_batches({.num_replicas = 2, .rank = 2}); },
                            {"rank 2 of 2"});
}

TEST(CheckShards, RefusesDataThatIsTooFewForTheRanks) {
  const auto few = loader(std::make_shared<Recorder>(3));
  EXPECT_NO_THROW(check_shards(few.any(), {.num_replicas = 3}));
  expect_error<DataError>([&] { check_shards(few.any(), {.num_replicas = 4}); },
                          {"smaller", "4 ranks", "3 samples"});
  EXPECT_NO_THROW(check_shards(few.any(), {.num_replicas = 4, .pad = false}));
  const auto none = loader(std::make_shared<Recorder>(0));
  expect_error<DataError>([&] { check_shards(none.any(), {.pad = false}); }, {"empty"});
  const auto short_batch = loader(std::make_shared<Recorder>(3), {.batch_size = 4, .drop_last = true});
  expect_error<DataError>([&] { check_shards(short_batch.any(), {}); }, {"drop_last"});
}

}  // namespace
}  // namespace lockstep
