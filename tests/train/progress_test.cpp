#include "train/data/fit_progress.h"

#include <gtest/gtest.h>
#include <lockstep/base/error.h>

#include "support/expect_error.h"

namespace lockstep::detail {
namespace {

TEST(ProgressTest, IsGivenAndTaken) {
  const FitProgress given{.epoch = 1,
                          .batches = 2,
                          .global_step = 3,
                          .batches_that_stepped = 4,
                          .samples = 5,
                          .num_training_batches = 6,
                          .window = {.done = 1, .length = 4}};
  FitProgress taken{.num_training_batches = 7};
  load_state(taken, state_of(given));
  EXPECT_EQ(taken, given);
  test::expect_error<CheckpointError>([&] { load_state(taken, {}); }, {"epoch", "integer"});
  EXPECT_EQ(taken, given);
  auto hostile = state_of(given);
  hostile.set("window_done", std::int64_t{4});
  test::expect_error<CheckpointError>([&] { load_state(taken, hostile); }, {"window_done", "4"});
}

}  // namespace
}  // namespace lockstep::detail
