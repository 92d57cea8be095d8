// Checkpoints written in the background hold what was there when they were asked for.
#include <lockstep/checkpoint/checkpoint.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

StateTree state_with(const at::Tensor& tensor) {
  StateTree state;
  state.set("tensor", tensor);
  return state;
}

float value_in(const std::filesystem::path& folder) {
  return Checkpoint(folder).shared().get<at::Tensor>("tensor")[0].item<float>();
}

TEST(CheckpointWriter, HoldsWhatWasThereWhenItWasAsked) {
  const test::TemporaryFolder folder;
  const auto tensor = torch::full({1 << 20}, 1.0F);
  CheckpointWriter writer;
  writer.save(folder / "one", {state_with(tensor)}, {});
  tensor.fill_(2);
  writer.save(folder / "two", {state_with(tensor)}, {});
  tensor.fill_(3);
  writer.wait();
  EXPECT_TRUE(writer.is_idle());
  EXPECT_EQ(value_in(folder / "one"), 1);
  EXPECT_EQ(value_in(folder / "two"), 2);
}

TEST(CheckpointWriter, TellsOfAFailureOnce) {
  const test::TemporaryFolder folder;
  folder.file("file", "");
  const auto state = state_with(torch::ones({1}));
  CheckpointWriter writer;
  writer.save(folder / "file" / "x", {state}, {});
  test::expect_error<IoError>([&] { writer.save(folder / "y", {state}, {}); }, {"file/x"});
  writer.save(folder / "y", {state}, {});
  writer.wait();
  EXPECT_EQ(value_in(folder / "y"), 1);
}

TEST(CheckpointWriter, WaitsWhenItEnds) {
  const test::TemporaryFolder folder;
  CheckpointWriter().save(folder / "x", {state_with(torch::ones({1 << 20}))}, {});
  EXPECT_EQ(value_in(folder / "x"), 1);
}

TEST(CheckpointWriter, WritesBesideTheCollectivesOfItsRanks) {
  const test::TemporaryFolder folder;
  testing::run_ranks(3, [&](Communicator comm) {
    CheckpointWriter writer(comm);
    StateTree own;
    own.set("rank", std::int64_t{comm.rank()});
    const auto tensor = torch::ones({1 << 16});
    writer.save(folder / "x", {state_with(tensor), own}, {});
    for (int i = 0; i < 50; ++i) comm.all_reduce(tensor, ReduceOp::kMax);
    writer.wait();
    comm.barrier();
  });
  EXPECT_EQ(Checkpoint(folder / "x").own(2).get<std::int64_t>("rank"), 2);
}

TEST(CheckpointWriter, TellsAllRanksThatOneCouldNotCopy) {
  const test::TemporaryFolder folder;
  testing::run_ranks(2, [&](Communicator comm) {
    CheckpointWriter writer(comm);
    StateTree own;
    if (comm.rank() == 1) own = state_with(torch::empty({1}, torch::kMeta));
    writer.save(folder / "x", {{}, own}, {});
    test::expect_error<IoError>([&] { writer.wait(); }, {"rank 1"});
  });
  EXPECT_EQ(folder.entries(), 0);
}

}  // namespace
}  // namespace lockstep
