#include <gmock/gmock.h>
#include <torch/torch.h>

#include <mutex>
#include <stdexcept>

#include <lockstep/base/error.h>
#include <lockstep/data/look_ahead.h>
#include <lockstep/fabric/fabric_loader.h>
#include <lockstep/testing/run_ranks.h>

#include "data/recorder.h"
#include "support/expect_error.h"

namespace lockstep {
namespace {

using test::Batches;
using test::batches_of;
using test::Counter;
using test::expect_error;
using test::Indices;
using ::testing::ElementsAre;

/// Batches of one item, of streams of these lengths.
Loader<Indices> streams(const Indices& lengths, int num_workers = 0) {
  return loader(std::make_shared<Counter>(lengths), {.num_workers = num_workers});
}

ShardSpec spec_of(const Communicator& world) { return {.num_replicas = world.size(), .rank = world.rank()}; }

/// How many batches each rank gets, with a collective in each step, as training has one.
std::vector<int> steps_of_ranks(const Indices& lengths, std::int64_t skip, int num_workers) {
  std::vector<int> steps(lengths.size());
  testing::run_ranks(static_cast<int>(lengths.size()), [&](const Communicator& world) {
    const auto loader = agree_on_batches(streams(lengths, num_workers), world);
    const auto stream = loader->stream(spec_of(world), 0, skip);
    int mine = 0;
    for (AnyBatch batch; stream->next(batch); ++mine) {
      EXPECT_EQ(batch.get<Indices>()[0], 100 * world.rank() + skip + mine);
      world.all_reduce(torch::ones({3}));
    }
    steps[static_cast<std::size_t>(world.rank())] = mine;
  });
  return steps;
}

TEST(LookAhead, EndsAllRanksWithTheShortest) {
  EXPECT_THAT(steps_of_ranks({5, 3, 9}, 0, 0), ElementsAre(3, 3, 3));
  EXPECT_THAT(steps_of_ranks({1, 4}, 0, 2), ElementsAre(1, 1));
  EXPECT_THAT(steps_of_ranks({0, 4}, 0, 0), ElementsAre(0, 0));
  EXPECT_THAT(steps_of_ranks({4, 4}, 0, 2), ElementsAre(4, 4));
}

TEST(LookAhead, GoesOnWithinAnEpoch) {
  EXPECT_THAT(steps_of_ranks({5, 3}, 2, 0), ElementsAre(1, 1));
  EXPECT_THAT(steps_of_ranks({5, 3}, 3, 2), ElementsAre(0, 0));
}

TEST(LookAhead, RefusesUnevenStreamsOnAllRanks) {
  std::mutex mutex;
  std::vector<std::string> errors;
  testing::run_ranks(2, [&](const Communicator& world) {
    const auto loader = agree_on_batches(streams({4, 2}), world, UnevenStreams::kRefuse);
    const auto stream = loader->stream(spec_of(world), 0);
    try {
      for (AnyBatch batch; stream->next(batch);) {
      }
    } catch (const DataError& error) {
      const std::scoped_lock lock(mutex);
      errors.push_back(error.what());
    }
  });
  ASSERT_EQ(errors.size(), 2u);
  for (const auto& error : errors) {
    EXPECT_THAT(error, ::testing::HasSubstr("different lengths"));
    EXPECT_THAT(error, ::testing::HasSubstr("one on 1"));
  }
}

TEST(LookAhead, KnowsTheLastBatch) {
  for (const int num_workers : {0, 2}) {
    const auto stream = look_ahead(streams({3}, num_workers))->stream({}, 0);
    AnyBatch batch;
    std::vector<bool> last;
    while (stream->next(batch)) last.push_back(stream->is_last());
    EXPECT_THAT(last, ElementsAre(false, false, true));
    EXPECT_FALSE(stream->next(batch));
  }
  AnyBatch batch;
  EXPECT_FALSE(look_ahead(streams({0}))->stream({}, 0)->next(batch));
}

TEST(LookAhead, KnowsTheLastBatchOfAllRanks) {
  testing::run_ranks(2, [](const Communicator& world) {
    const auto stream = agree_on_batches(streams({4, 2}), world)->stream(spec_of(world), 0);
    AnyBatch batch;
    ASSERT_TRUE(stream->next(batch));
    EXPECT_FALSE(stream->is_last());
    ASSERT_TRUE(stream->next(batch));
    EXPECT_TRUE(stream->is_last());
  });
}

TEST(LookAhead, LetsRanksEvaluateEachToItsEnd) {
  testing::run_ranks(2, [](const Communicator& world) {
    const Loader<Indices> own(agree_on_batches(streams({4, 2}), world));
    auto spec = spec_of(world);
    spec.pad = false;
    EXPECT_EQ(batches_of(own, 0, spec).size(), world.rank() == 0 ? 4u : 2u);
  });
}

TEST(LookAhead, ThrowsAnErrorInItsTurn) {
  const auto failing = loader(std::make_shared<Counter>(Indices{9}, [](std::span<const std::int64_t> items) {
    if (items[0] == 2) throw std::runtime_error("item 2");
  }));
  const auto stream = look_ahead(failing)->stream({}, 0);
  AnyBatch batch;
  EXPECT_TRUE(stream->next(batch));
  EXPECT_TRUE(stream->next(batch));
  EXPECT_EQ(batch.get<Indices>()[0], 1);
  expect_error<std::runtime_error>([&] { stream->next(batch); }, {"item 2"});
  EXPECT_FALSE(stream->next(batch));
}

TEST(LookAhead, LeavesTheRestAsItIs) {
  const auto data = loader(std::make_shared<test::Recorder>(10), {.batch_size = 4, .shuffle = true});
  const Loader<Indices> ahead(look_ahead(data));
  EXPECT_EQ(batches_of(ahead, 2), batches_of(data, 2));
  EXPECT_TRUE(test::resumes_anywhere(ahead, 2));
  EXPECT_EQ(ahead.num_batches(), 3);
  EXPECT_EQ(ahead.num_samples(), 10);
  EXPECT_EQ(ahead.any().batch_size(), 4);
}

TEST(LookAhead, AnErrorOfARankIsNotHiddenByTheLengths) {
  std::vector<std::string> errors(2);
  testing::run_ranks(2, [&](const Communicator& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    const auto numbers = std::make_shared<Counter>(Indices{4, 4}, [](auto items) {
      if (items[0] == 2) throw std::runtime_error("bad picture");
    });
    const auto stream =
        agree_on_batches(loader(numbers), world, UnevenStreams::kRefuse)->stream(spec_of(world), 0);
    try {
      for (AnyBatch batch; stream->next(batch);) world.all_reduce(torch::ones({1}));
    } catch (const std::exception& error) {
      errors[rank] = error.what();
    }
  });
  EXPECT_EQ(errors[0], "bad picture");
  EXPECT_THAT(errors[1], ::testing::HasSubstr("different lengths"));
}

}  // namespace
}  // namespace lockstep
