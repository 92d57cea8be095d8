#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/data/loader.h>

#include "support/expect_error.h"

namespace lockstep {
namespace {

TEST(DataPositionTest, IsGivenAndTaken) {
  DataPosition taken;
  load_state(taken, state_of(DataPosition{.epoch = 2, .batches = 5}));
  EXPECT_EQ(taken, (DataPosition{.epoch = 2, .batches = 5}));
}

TEST(DataPositionTest, RefusesWhatIsNoPosition) {
  DataPosition position{.epoch = 1, .batches = 1};
  auto state = state_of(position);
  state.set("batches", -1);
  test::expect_error<CheckpointError>([&] { load_state(position, state); }, {"batches", ">= 0", "-1"});
  test::expect_error<CheckpointError>([&] { load_state(position, {}); }, {"epoch", "integer", "none"});
  EXPECT_EQ(position, (DataPosition{.epoch = 1, .batches = 1}));
}

}  // namespace
}  // namespace lockstep
