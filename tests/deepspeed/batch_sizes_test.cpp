// DeepSpeed's cases of batch sizes on two ranks, and their errors.
#include <gtest/gtest.h>

#include <limits>

#include <lockstep/base/error.h>
#include <lockstep/deepspeed/complete.h>

#include "support/expect_error.h"

namespace lockstep {
namespace {

using test::expect_error;
using Size = std::optional<std::int64_t>;

DeepSpeedConfig sizes(Size train, Size micro, Size steps) {
  return {.train_batch_size = train,
          .train_micro_batch_size_per_gpu = micro,
          .gradient_accumulation_steps = steps};
}

void expect_refused(const DeepSpeedConfig& config, const std::vector<std::string>& parts) {
  expect_error<ConfigError>([&] { (void)resolve_batch_sizes(config, 2); }, parts);
}

TEST(BatchSizes, AnyTwoGiveTheThird) {
  for (const auto& [micro, steps] : {std::pair{16, 1}, {8, 2}}) {
    const DeepSpeedBatchSizes expected{32, micro, steps};
    EXPECT_EQ(resolve_batch_sizes(sizes(32, micro, steps), 2), expected);
    EXPECT_EQ(resolve_batch_sizes(sizes(32, micro, {}), 2), expected);
    EXPECT_EQ(resolve_batch_sizes(sizes(32, {}, steps), 2), expected);
    EXPECT_EQ(resolve_batch_sizes(sizes({}, micro, steps), 2), expected);
  }
}

TEST(BatchSizes, OneAloneMeansNoAccumulation) {
  EXPECT_EQ(resolve_batch_sizes(sizes(32, {}, {}), 2), (DeepSpeedBatchSizes{32, 16, 1}));
  EXPECT_EQ(resolve_batch_sizes(sizes({}, 16, {}), 2), (DeepSpeedBatchSizes{32, 16, 1}));
}

TEST(BatchSizes, RefusesWhatDeepSpeedRefusesWithItsNumbers) {
  expect_refused(sizes(33, 17, 2), {"33 != 17 x 2 x 2", "2 ranks"});
  expect_refused(sizes(32, 18, 1), {"32 != 18 x 1 x 2"});
  expect_refused(sizes(33, 17, {}), {"gradient_accumulation_steps comes out as 0", "train_batch_size = 33"});
  expect_refused(sizes(32, 18, {}), {"gradient_accumulation_steps comes out as 0"});
  expect_refused(sizes(33, {}, 2), {"33 != 8 x 2 x 2"});
  expect_refused(sizes({}, {}, 2), {"no batch size", "train_batch_size or train_micro_batch_size_per_gpu"});
  expect_refused(sizes({}, {}, {}), {"no batch size", "train_batch_size = none"});
  expect_refused(sizes(0, {}, {}), {"train_batch_size comes out as 0", "> 0"});
  expect_refused(sizes({}, -4, {}), {"train_batch_size comes out as -8"});
  expect_refused(sizes(1, {}, {}), {"train_micro_batch_size_per_gpu comes out as 0"});
}

TEST(BatchSizes, SurvivesAnyNumbers) {
  const std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                     most = std::numeric_limits<std::int64_t>::max();
  const std::vector<Size> numbers{{}, least, -1, 0, 1, most};
  for (const auto& train : numbers) {
    for (const auto& micro : numbers) {
      for (const auto& steps : numbers) {
        try {
          const auto found = resolve_batch_sizes(sizes(train, micro, steps), 2);
          EXPECT_GT(found.train_batch_size, 0);
        } catch (const ConfigError&) {
        }
      }
    }
  }
}

TEST(BatchSizes, ErrorsNameThePlaceAndAutoThatNobodyFilled) {
  const auto config = parse_deepspeed_config(
                          "{\"train_batch_size\": 33,\n\"gradient_accumulation_steps\": \"auto\"}", "ds.json")
                          .config;
  expect_refused(config,
                 {"train_batch_size (ds.json:1:2) = 33", "gradient_accumulation_steps (ds.json:2:1) = auto"});
  EXPECT_EQ(resolve_batch_sizes(config, 3), (DeepSpeedBatchSizes{33, 11, 1}));
}

}  // namespace
}  // namespace lockstep
