#include <gmock/gmock.h>
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <latch>
#include <map>
#include <mutex>
#include <ranges>
#include <stdexcept>
#include <thread>

#include <lockstep/base/error.h>
#include <lockstep/data/batch_generator.h>
#include <lockstep/data/dataset.h>
#include <lockstep/data/loader.h>
#include <lockstep/data/sampler.h>
#include <lockstep/data/torch_dataset.h>
#include <lockstep/testing/fork_ranks.h>

#include "data/recorder.h"
#include "support/expect_error.h"

namespace lockstep {
namespace {

using test::Batches;
using test::batches_of;
using test::Counter;
using test::expect_error;
using test::Indices;
using test::Recorder;
using test::resumes_anywhere;
using ::testing::ElementsAre;

class LoaderWithWorkers : public ::testing::TestWithParam<int> {
 protected:
  LoaderOptions options(LoaderOptions with) const {
    with.num_workers = GetParam();
    return with;
  }
};
INSTANTIATE_TEST_SUITE_P(Workers, LoaderWithWorkers, ::testing::Values(0, 1, 3));

TEST_P(LoaderWithWorkers, GivesBatchesInOrder) {
  const auto numbers = loader(std::make_shared<Recorder>(7), options({.batch_size = 3}));
  EXPECT_THAT(batches_of(numbers), ElementsAre(Indices{0, 1, 2}, Indices{3, 4, 5}, Indices{6}));
  EXPECT_EQ(numbers.num_batches(), 3);
  const auto full = loader(std::make_shared<Recorder>(7), options({.batch_size = 3, .drop_last = true}));
  EXPECT_THAT(batches_of(full), ElementsAre(Indices{0, 1, 2}, Indices{3, 4, 5}));
  EXPECT_EQ(full.num_batches(), 2);
}

TEST(LoaderOfOneRank, TakesADistributedSamplerAsItIs) {
  const auto numbers = std::make_shared<Recorder>(7);
  for (const int replicas : {1, 2}) {  // use_distributed_sampler or not: nothing is dealt out twice
    const ShardSpec spec{.num_replicas = replicas, .rank = replicas - 1};
    for (const std::int64_t epoch : {0, 3}) {
      DistributedSampler sampler(7, 2, 1, {.seed = 5});
      const auto by_value = loader(numbers, {.batch_size = 4, .sampler = sampler});
      const auto by_pointer =
          loader(numbers, {.batch_size = 4, .sampler = std::make_shared<DistributedSampler>(sampler)});
      sampler.set_epoch(epoch);
      EXPECT_THAT(batches_of(by_value, epoch, spec), ElementsAre(sampler.indices()));
      EXPECT_THAT(batches_of(by_pointer, epoch, spec), ElementsAre(sampler.indices()));
      EXPECT_EQ(by_value.num_batches(spec), 1);
      EXPECT_FALSE(by_value.any().is_dealt_out());
    }
  }
  EXPECT_TRUE(loader(numbers, {}).any().is_dealt_out());
}

TEST(LoaderOfOneRank, TakesADistributedSamplerOfTorch) {
  namespace samplers = torch::data::samplers;
  const auto numbers = std::make_shared<Recorder>(6);
  const auto in_order =
      loader(numbers, {.batch_size = 3, .sampler = samplers::DistributedSequentialSampler(6, 2, 1)});
  EXPECT_THAT(batches_of(in_order), ElementsAre(Indices{3, 4, 5}));
  Indices all;
  for (const std::size_t rank : {0, 1}) {
    const auto shuffled =
        loader(numbers, {.batch_size = 3, .sampler = samplers::DistributedRandomSampler(6, 2, rank)});
    EXPECT_EQ(shuffled.num_batches(), 1);
    for (const auto& batch : batches_of(shuffled, 2)) all.insert(all.end(), batch.begin(), batch.end());
    EXPECT_EQ(batches_of(shuffled, 2), batches_of(shuffled, 2));
  }
  EXPECT_THAT(all, ::testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_P(LoaderWithWorkers, GivesTheSameBatchesWhateverTheWorkers) {
  // Batches take turns in being slow, so that workers overtake each other.
  const auto uneven = std::make_shared<Recorder>(1000, [](std::span<const std::int64_t> indices) {
    if (indices[0] % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  });
  const auto expected = loader(std::make_shared<Recorder>(1000), {.batch_size = 7, .shuffle = true});
  const auto actual = loader(uneven, options({.batch_size = 7, .shuffle = true}));
  for (std::int64_t epoch : {0, 1}) EXPECT_EQ(batches_of(actual, epoch), batches_of(expected, epoch));
  EXPECT_NE(batches_of(actual, 0), batches_of(actual, 1));
}

TEST_P(LoaderWithWorkers, SkipsWithoutReading) {
  const auto recorder = std::make_shared<Recorder>(100);
  const auto numbers = loader(recorder, options({.batch_size = 10, .shuffle = true}));
  const Batches all = batches_of(numbers, 2);
  const int calls = recorder->calls();
  EXPECT_EQ(batches_of(numbers, 2, {}, 7), Batches(all.begin() + 7, all.end()));
  EXPECT_EQ(recorder->calls(), calls + 3);
  EXPECT_TRUE(batches_of(numbers, 2, {}, 10).empty());
  EXPECT_TRUE(batches_of(numbers, 2, {}, 11).empty());
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
  EXPECT_EQ(batches_of(loader(meeting, {.num_workers = 2})).size(), 2u);
}

TEST(Loader, GivesEachRankWhatTheSamplersSay) {
  const auto numbers = loader(std::make_shared<Recorder>(10), {.batch_size = 4, .shuffle = true});
  for (int rank = 0; rank < 3; ++rank) {
    SCOPED_TRACE(rank);
    DistributedSampler padded(10, 3, rank, {.seed = 5});
    padded.set_epoch(2);
    Indices joined;
    for (const Indices& batch : batches_of(numbers, 2, {.num_replicas = 3, .rank = rank, .seed = 5})) {
      joined.insert(joined.end(), batch.begin(), batch.end());
    }
    EXPECT_EQ(joined, padded.indices());
    EXPECT_EQ(batches_of(numbers, 0, {.num_replicas = 3, .rank = rank, .pad = false})[0],
              UnrepeatedDistributedSampler(10, 3, rank).indices());
    EXPECT_EQ(numbers.num_batches({.num_replicas = 3, .rank = rank}), 1);
  }
  const auto ordered = loader(std::make_shared<Recorder>(4), {.batch_size = 2});
  EXPECT_THAT(batches_of(ordered, 1, {.num_replicas = 2, .rank = 1}), ElementsAre(Indices{1, 3}));
  const auto seeded = loader(std::make_shared<Recorder>(10), {.batch_size = 10, .shuffle = true, .seed = 9});
  EXPECT_THAT(batches_of(seeded, 0, {.seed = 5}), ElementsAre(random_permutation(10, 9)));
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

class OddThenEven final : public Sampler {
 public:
  std::int64_t num_samples() const override { return 5; }
  std::vector<std::int64_t> indices(std::int64_t epoch, std::uint64_t seed) const override {
    return {1, 3, 0, 2, (epoch + static_cast<std::int64_t>(seed)) % 5};
  }
};

class Pairs final : public BatchSampler {
 public:
  std::int64_t num_batches() const override { return 3; }
  std::vector<std::vector<std::int64_t>> batches(std::int64_t, std::uint64_t) const override {
    return {{9, 8}, {7}, {6, 5, 4}};
  }
};

TEST_P(LoaderWithWorkers, KeepsTheOrderOfASampler) {
  const auto data = std::make_shared<Recorder>(5);
  const auto numbers =
      loader(data, options({.batch_size = 2, .seed = 4, .sampler = std::make_shared<OddThenEven>()}));
  EXPECT_EQ(numbers.num_batches(), 3);
  EXPECT_THAT(batches_of(numbers), ElementsAre(Indices{1, 3}, Indices{0, 2}, Indices{4}));
  EXPECT_THAT(batches_of(numbers, 1), ElementsAre(Indices{1, 3}, Indices{0, 2}, Indices{0}));
  EXPECT_THAT(batches_of(numbers, 0, {.num_replicas = 2, .rank = 0}), ElementsAre(Indices{1, 0}, Indices{4}));
  EXPECT_THAT(batches_of(numbers, 0, {.num_replicas = 2, .rank = 1}), ElementsAre(Indices{3, 2}, Indices{1}));
  EXPECT_THAT(batches_of(numbers, 0, {.num_replicas = 2, .rank = 1, .pad = false}),
              ElementsAre(Indices{3, 2}));
  EXPECT_TRUE(resumes_anywhere(numbers, 3, {.num_replicas = 2, .rank = 1}));
}

TEST_P(LoaderWithWorkers, DealsOutTheBatchesOfABatchSampler) {
  const auto data = std::make_shared<Recorder>(10);
  const auto numbers = loader(data, options({.batch_sampler = std::make_shared<Pairs>()}));
  EXPECT_THAT(batches_of(numbers), ElementsAre(Indices{9, 8}, Indices{7}, Indices{6, 5, 4}));
  EXPECT_EQ(numbers.num_batches({.num_replicas = 2}), 2);
  EXPECT_THAT(batches_of(numbers, 0, {.num_replicas = 2, .rank = 1}), ElementsAre(Indices{7}, Indices{9, 8}));
  EXPECT_THAT(batches_of(numbers, 0, {.num_replicas = 2, .rank = 1, .pad = false}), ElementsAre(Indices{7}));
  EXPECT_TRUE(resumes_anywhere(numbers));
}

TEST(Loader, NamesSamplersThatDoNotFit) {
  const auto data = std::make_shared<Recorder>(3);
  const auto sampler = std::make_shared<OddThenEven>();
  const auto pairs = std::make_shared<Pairs>();
  expect_error<DataError>([&] { loader(data, {.sampler = sampler}).epoch(0); }, {"index 3", "index < 3"});
  expect_error<DataError>([&] { loader(data, {.batch_sampler = pairs}).epoch(0); }, {"index 9"});
  expect_error<ConfigError>([&] { loader(data, {.shuffle = true, .sampler = sampler}); },
                            {"sampler replaces shuffle"});
  expect_error<ConfigError>([&] { loader(data, {.batch_size = 2, .batch_sampler = pairs}); },
                            {"batch_sampler replaces batch_size"});
  expect_error<ConfigError>([&] { loader(data, {.sampler = sampler, .batch_sampler = pairs}); },
                            {"batch_sampler replaces sampler"});
}

TEST_P(LoaderWithWorkers, GivesAStreamInOrder) {
  const auto uneven = std::make_shared<Counter>(Indices{8, 5}, [](std::span<const std::int64_t> items) {
    if (items[0] % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  });
  const auto numbers = loader(uneven, options({.batch_size = 3}));
  EXPECT_THAT(batches_of(numbers), ElementsAre(Indices{0, 1, 2}, Indices{3, 4, 5}, Indices{6, 7}));
  EXPECT_THAT(batches_of(numbers, 2, {.num_replicas = 2, .rank = 1}),
              ElementsAre(Indices{2100, 2101, 2102}, Indices{2103, 2104}));
  EXPECT_TRUE(resumes_anywhere(numbers, 1));
  EXPECT_EQ(numbers.num_batches(), kUnknownLength);
  const auto full = loader(uneven, options({.batch_size = 3, .drop_last = true}));
  EXPECT_THAT(batches_of(full), ElementsAre(Indices{0, 1, 2}, Indices{3, 4, 5}));
}

TEST_P(LoaderWithWorkers, GivesTransformsOfAStreamTheSameRandomNumbers) {
  struct Random final : IterableDataset<std::int64_t, std::int64_t> {
    struct Stream final : ItemStream<std::int64_t> {
      bool next(std::int64_t& item) override { return (item = count++) < 20; }
      std::int64_t count = 0;
    };
    std::unique_ptr<ItemStream<std::int64_t>> stream(const ShardSpec&, std::int64_t) const override {
      return std::make_unique<Stream>();
    }
    std::int64_t collate(std::vector<std::int64_t>) const override {
      return torch::randint(1 << 30, {1}, batch_generator(), torch::kLong).item<std::int64_t>();
    }
  };
  const auto expected = batches_of(loader(std::make_shared<Random>(), {.batch_size = 2}), 3, {.seed = 7});
  const auto numbers = loader(std::make_shared<Random>(), options({.batch_size = 2}));
  EXPECT_EQ(batches_of(numbers, 3, {.seed = 7}), expected);
  EXPECT_NE(batches_of(numbers, 4, {.seed = 7}), expected);
  EXPECT_TRUE(resumes_anywhere(numbers, 3, {.seed = 7}));
}

TEST_P(LoaderWithWorkers, ThrowsAnErrorOfAStreamInItsTurn) {
  const auto failing = std::make_shared<Counter>(Indices{100}, [](std::span<const std::int64_t> items) {
    if (items[0] >= 30) throw std::runtime_error("item " + std::to_string(items[0]));
  });
  const std::shared_ptr<AnyLoader> any = loader(failing, options({.batch_size = 10}));
  const auto stream = any->stream({}, 0);
  AnyBatch batch;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(stream->next(batch));
  expect_error<std::runtime_error>([&] { stream->next(batch); }, {"item 30"});
  EXPECT_FALSE(stream->next(batch));
}

TEST(Loader, RefusesToShuffleAStream) {
  const auto data = std::make_shared<Counter>(Indices{8});
  expect_error<ConfigError>([&] { loader(data, {.shuffle = true}); }, {"stream", "cannot be shuffled"});
  expect_error<ConfigError>([&] { loader(data, {.batch_size = 0}); }, {"batch_size"});
}

TEST(Loader, GivesPersistentWorkersToOneStreamAtATime) {
  const auto numbers = loader(std::make_shared<Recorder>(20), {.num_workers = 2, .persistent_workers = true});
  auto first = numbers.epoch(0);
  auto first_at = first.begin();
  EXPECT_EQ(batches_of(numbers).size(), 20u);
  int left = 0;
  for (; first_at != first.end(); ++first_at) ++left;
  EXPECT_EQ(left, 20);
  EXPECT_EQ(batches_of(numbers).size(), 20u);
}

TEST(Loader, KeepsPersistentWorkersWithWhatIsTheirs) {
  const auto batches_seen = [](bool persistent) {
    std::mutex mutex;
    std::map<pid_t, int> seen;  // by thread
    const auto data = std::make_shared<Recorder>(4, [&](auto) {
      const std::lock_guard lock(mutex);
      ++seen[::gettid()];
    });
    const auto numbers = loader(data, {.num_workers = 1, .persistent_workers = persistent});
    for (int epoch = 0; epoch < 3; ++epoch) batches_of(numbers, epoch);
    return std::ranges::max(std::views::values(seen));
  };
  EXPECT_EQ(batches_seen(true), 12);
  EXPECT_EQ(batches_seen(false), 4);
}

TEST(Loader, GivesTheSameBatchesWherePinningIsMoot) {
  const auto examples = loader(tensor_dataset(torch::arange(6).unsqueeze(1)), {.pin_memory = true});
  const auto all = batches_of(examples);
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[5].data.item<std::int64_t>(), 5);
  EXPECT_EQ(all[5].data.is_pinned(), at::hasCUDA());
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

TEST_P(LoaderWithWorkers, KeepsTheGeneratorOfABatchThatReadsAnotherLoader) {
  const auto draw = [] { return at::rand({1}, batch_generator()).item<float>(); };
  const auto numbers_of = [&](bool reads_another) {
    std::vector<float> drawn(4);
    const auto inner = loader(std::make_shared<Recorder>(2, [&](auto) { draw(); }), {.batch_size = 2});
    const auto outer = std::make_shared<Recorder>(4, [&](auto indices) {
      if (reads_another) batches_of(inner);
      drawn[static_cast<std::size_t>(indices[0])] = draw();
    });
    batches_of(loader(outer, options({.batch_size = 1})), 0, {.seed = 7});
    return drawn;
  };
  EXPECT_EQ(numbers_of(true), numbers_of(false));
}

// Threads with stacks for which there is no room after a few.
LOCKSTEP_RANK_BODY(too_many_workers)(Communicator, std::string)->std::string {
  constexpr std::size_t kStack = std::size_t{1} << 30;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStack);
  pthread_setattr_default_np(&attributes);
  std::size_t pages = 0;  // of memory in use, the first number in the file
  std::ifstream("/proc/self/statm") >> pages;
  const auto size = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + 4 * kStack;
  const ::rlimit limit{.rlim_cur = size, .rlim_max = size};
  ::setrlimit(RLIMIT_AS, &limit);
  try {
    batches_of(loader(std::make_shared<Recorder>(9), {.num_workers = 64}));
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Loader, SaysWhereAWorkerCannotBeStarted) {
  const auto rank = testing::fork_ranks(1, "too_many_workers").at(0);
  EXPECT_THAT(rank.result, ::testing::HasSubstr("cannot be started; expected 64 of them (num_workers)"));
}

}  // namespace
}  // namespace lockstep
