// Folders in the making: several for one name, what killed ones leave, and file systems without an exchange.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include <gtest/gtest.h>
#include <lockstep/base/error.h>

#include "checkpoint/staging_directory.h"
#include "formats/checkpoint_folders.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

// What stands for a checkpoint here.
void fill(const fs::path& folder, const std::string& text) {
  fs::create_directories(folder);
  std::ofstream(folder / "manifest.json") << text;
}

std::string text_in(const fs::path& folder) { return test::content(folder / "manifest.json"); }

// The same sibling, made by another machine.
fs::path of_another_host(const fs::path& sibling) {
  auto name = sibling.filename().string();
  auto& letter = name[name.size() - sibling.extension().string().size() - 17];
  letter = letter == '0' ? '1' : '0';
  return sibling.parent_path() / name;
}

class MakingFolder : public ::testing::Test {
 protected:
  test::TemporaryFolder folder_;
  fs::path target_ = folder_ / "x.ckpt";
};

TEST_F(MakingFolder, TwoForOneNameDoNotMeet) {
  StagingDirectory one(target_);
  fill(one.path(), "one");
  {
    StagingDirectory other(target_);
    fill(other.path(), "other");
    EXPECT_EQ(text_in(one.path()), "one") << "one that lives was taken for a leftover";
    other.commit();
  }
  EXPECT_EQ(text_in(target_), "other");
  one.commit();
  EXPECT_EQ(text_in(target_), "one");
  EXPECT_EQ(folder_.entries(), 1);
}

TEST_F(MakingFolder, NothingThatCameMeanwhileIsRemoved) {
  StagingDirectory making(target_);
  fill(making.path(), "new");
  fs::create_directory(target_);
  std::ofstream(target_ / "thesis.tex") << "text";
  test::expect_error<IoError>([&] { making.commit(); }, {"x.ckpt", "a folder with other content"});
  EXPECT_EQ(test::content(target_ / "thesis.tex"), "text");
}

// Such as a copy that was broken off before its manifest.
TEST_F(MakingFolder, WhatIsLeftOfACheckpointIsReplaced) {
  fs::create_directory(target_);
  for (const auto* name : {"model.safetensors", "rank_0.safetensors", "manifest.xxh128"})
    std::ofstream(target_ / name) << "rest";
  StagingDirectory making(target_);
  fill(making.path(), "new");
  making.commit();
  EXPECT_EQ(text_in(target_), "new");
  EXPECT_FALSE(fs::exists(target_ / "rank_0.safetensors"));
}

// Only lockstep writes the others.
TEST_F(MakingFolder, AModelOfSomebodyElseIsNotReplaced) {
  fs::create_directory(target_);
  std::ofstream(target_ / "model.safetensors") << "weights";
  test::expect_error<IoError>([&] { const StagingDirectory making(target_); },
                              {"a folder with other content"});
}

TEST_F(MakingFolder, WhatAKilledOneLeftIsRemoved) {
  const auto child = ::fork();
  if (child == 0) {
    const StagingDirectory making(target_);
    fill(making.path(), "half");
    ::_exit(0);  // no destructor runs
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(siblings(target_, kDraft).size(), 1);
  const StagingDirectory making(target_);
  EXPECT_EQ(siblings(target_, kDraft), std::vector{making.path()});
}

TEST_F(MakingFolder, DraftsOfOtherMachinesAndOtherNamesStay) {
  const std::vector<fs::path> drafts{of_another_host(new_sibling(target_, kDraft)),
                                     new_sibling(folder_ / "y.ckpt", kDraft), folder_ / ".x.ckpt.mine.draft"};
  for (const auto& draft : drafts) fill(draft, "half");
  const StagingDirectory making(target_);
  for (const auto& draft : drafts) EXPECT_TRUE(fs::exists(draft)) << draft;
}

// As if nobody had touched it for two days.
void age(const fs::path& path) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(48));
}

TEST_F(MakingFolder, DraftsOfOtherMachinesGoWhenNothingInThemChanges) {
  const auto still = of_another_host(new_sibling(target_, kDraft)),
             written = of_another_host(new_sibling(target_, kDraft));
  for (const auto& draft : {still, written}) fill(draft, "half");
  age(still / "manifest.json");
  for (const auto& draft : {still, written}) age(draft);
  const StagingDirectory making(target_);
  EXPECT_FALSE(fs::exists(still));
  EXPECT_TRUE(fs::exists(written)) << "its file is new";
  EXPECT_EQ(folder_.entries(), 2) << "the other one and ours";
}

TEST_F(MakingFolder, AWriterThatWasTakenForDeadFailsAndTheCheckpointStays) {
  fill(target_, "before");
  StagingDirectory slept(target_);
  fill(slept.path(), "late");
  fs::rename(slept.path(), new_sibling(target_, kDraft));  // what another machine does first
  test::expect_error<IoError>([&] { slept.commit(); }, {"x.ckpt"});
  EXPECT_EQ(text_in(target_), "before");
}

TEST_F(MakingFolder, OneThatWasMovedAsideIsFoundAndGetsItsNameAgain) {
  const auto aside = new_sibling(target_, kOlder);
  fill(aside, "older");
  EXPECT_EQ(place_of_checkpoint(target_), aside);
  {
    const StagingDirectory given_up(target_);
    EXPECT_EQ(text_in(target_), "older");
  }
  EXPECT_EQ(place_of_checkpoint(target_), target_);
  EXPECT_EQ(folder_.entries(), 1);
}

TEST_F(MakingFolder, OneThatWasMovedAsideLastsUntilItIsReplaced) {
  const auto aside = of_another_host(new_sibling(target_, kOlder));
  fill(aside, "older");
  StagingDirectory making(target_);
  fill(making.path(), "new");
  EXPECT_EQ(place_of_checkpoint(target_), aside);
  making.commit();
  EXPECT_EQ(text_in(place_of_checkpoint(target_)), "new");
  EXPECT_EQ(folder_.entries(), 1);
}

}  // namespace
}  // namespace lockstep::detail
