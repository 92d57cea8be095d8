// Checkpoints that several ranks write and open together: they must mean the same one.
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/checkpoint/checkpoint.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "formats/checkpoint_files.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

constexpr int kRanks = 3;

class Together : public ::testing::Test {
 protected:
  static CheckpointState state(int number) {
    StateTree model;
    for (int i = 0; i < 6; ++i) model.set("w" + std::to_string(i), torch::full({100}, number));
    CheckpointState state;
    state.shared.set("model", model);
    return state;
  }
  fs::path path(const std::string& name = "x.ckpt") const { return folder_ / name; }

  test::TemporaryFolder folder_;
};

TEST_F(Together, SavingUnderDifferentNamesIsRefusedOnAllRanks) {
  testing::run_ranks(kRanks, [&](const Communicator& communicator) {
    const auto own = path(communicator.rank() == 1 ? "other.ckpt" : "x.ckpt");
    expect_error<IoError>(
        [&] { save_checkpoint(own, state(1), {}, communicator); },
        {"do not write to one folder", path().string(), path("other.ckpt").string(), "rank 1"});
  });
  EXPECT_EQ(folder_.entries(), 0);
}

// With kFull rank 1 has nothing to write.
TEST_F(Together, SavingInDifferentPlacesIsRefusedOnAllRanks) {
  for (const auto type : {StateDictType::kFull, StateDictType::kSharded}) {
    testing::run_ranks(kRanks, [&](const Communicator& communicator) {
      const auto own = folder_ / (communicator.rank() == 1 ? "b" : "a") / "x.ckpt";
      expect_error<IoError>(
          [&] { save_checkpoint(own, state(1), {}, communicator, {.state_dict_type = type}); },
          {"do not write to one folder", "a/x.ckpt, as rank 0 was given", "b/x.ckpt", "rank 1",
           "all ranks see"});
    });
  }
  EXPECT_TRUE(fs::is_empty(folder_ / "a"));
}

TEST_F(Together, TwoPathsToOneFolderAreTheSame) {
  fs::create_directory(folder_ / "a");
  fs::create_directory_symlink(folder_ / "a", folder_ / "b");
  testing::run_ranks(kRanks, [&](const Communicator& communicator) {
    const auto own = folder_ / (communicator.rank() == 1 ? "b" : "a") / "x.ckpt";
    save_checkpoint(own, state(1), {}, communicator);
    EXPECT_EQ(Checkpoint(own, Verify::kAll, communicator).entry("model").size(), 6);
  });
}

TEST_F(Together, OpeningDifferentOnesIsRefusedOnAllRanks) {
  save_checkpoint(path("a"), state(1), {});
  save_checkpoint(path("b"), state(2), {});
  testing::run_ranks(kRanks, [&](const Communicator& communicator) {
    const auto own = path(communicator.rank() == 1 ? "b" : "a");
    expect_error<CheckpointError>([&] { const Checkpoint opened(own, Verify::kAll, communicator); },
                                  {"another checkpoint than that of rank 0", "rank 1"});
  });
}

TEST_F(Together, WhatOneRankCannotOpenNoRankUses) {
  save_checkpoint(path(), state(1), {});
  testing::run_ranks(kRanks, [&](const Communicator& communicator) {
    const auto own = path(communicator.rank() == 1 ? "absent" : "x.ckpt");
    expect_error<Error>([&] { const Checkpoint opened(own, Verify::kAll, communicator); },
                        {"absent is no checkpoint"});
  });
}

// Every byte is in the share of exactly one rank, and all hear of what that one finds.
TEST_F(Together, RanksShareTheCheck) {
  save_checkpoint(path(), state(1), {});
  const auto file = path() / "model.safetensors";
  const auto good = test::content(file);
  std::set<int> finders;
  for (std::size_t at = 0; at < good.size(); at += 50) {
    auto bad = good;
    bad[at] ^= 1;
    std::ofstream(file, std::ios::binary) << bad;
    std::vector<int> found;
    for (int rank = 0; rank < kRanks; ++rank) {
      try {
        const detail::CheckpointFiles files(path(), Verify::kAll, {.index = rank, .count = kRanks});
      } catch (const CheckpointError&) {
        found.push_back(rank);
      }
    }
    ASSERT_EQ(found.size(), 1U) << "byte " << at;
    finders.insert(found.front());
  }
  EXPECT_EQ(finders, (std::set{0, 1, 2}));
  testing::run_ranks(kRanks, [&](const Communicator& communicator) {
    expect_error<CheckpointError>([&] { const Checkpoint opened(path(), Verify::kAll, communicator); },
                                  {"model.safetensors", "is damaged"});
  });
}

}  // namespace
}  // namespace lockstep
