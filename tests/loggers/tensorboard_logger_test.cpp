#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/loggers/loggers.h>
#include <unistd.h>

#include <algorithm>

#include <lockstep/base/error.h>

#include "records.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

std::vector<fs::path> event_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("events")) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

// The records of the only event file of a folder.
std::vector<std::string> events(const fs::path& folder) {
  const auto files = event_files(folder);
  EXPECT_EQ(files.size(), 1u);
  return files.empty() ? std::vector<std::string>() : test::records(test::content(files[0]));
}

void log_one(Logger& logger, std::int64_t step) {
  logger.log_metrics(std::vector<Metric>{{"loss", 0.5}}, 0, step);
}

TEST(TensorBoardLogger, WritesIntoLightningsFolders) {
  const TemporaryFolder folder;
  TensorBoardLogger first({.save_dir = folder.path()});
  TensorBoardLogger second({.save_dir = folder.path()});
  for (Logger* logger : {static_cast<Logger*>(&second), static_cast<Logger*>(&first)}) {
    log_one(*logger, 0);
    logger->finalize("success");
  }
  EXPECT_EQ(second.version(), "0");
  EXPECT_EQ(first.version(), "1");
  EXPECT_EQ(first.name(), "lightning_logs");
  EXPECT_EQ(first.save_dir(), folder.path());
  EXPECT_EQ(first.log_dir(), folder / "lightning_logs" / "version_1");
  EXPECT_EQ(events(first.log_dir()).size(), 2u);
  EXPECT_EQ(events(second.log_dir()).size(), 2u);
}

TEST(TensorBoardLogger, TakesNamesOfFolders) {
  const auto log_dir = [](TensorBoardOptions options) {
    return TensorBoardLogger(std::move(options)).log_dir();
  };
  EXPECT_EQ(log_dir({.save_dir = "a", .name = "b", .version = "3"}), "a/b/version_3");
  EXPECT_EQ(log_dir({.save_dir = "a", .name = "", .version = "mine", .sub_dir = "c"}), "a/mine/c");
}

TEST(TensorBoardLogger, NamesItsFileAfterTimeHostAndProcess) {
  const TemporaryFolder folder;
  TensorBoardLogger logger({.save_dir = folder.path(), .name = "", .version = "v"});
  log_one(logger, 0);
  const auto name = event_files(folder / "v").at(0).filename().string();
  EXPECT_THAT(name, ::testing::MatchesRegex("events.out.tfevents.[0-9]{10}.*[.]" +
                                            std::to_string(::getpid()) + "[.][0-9]+"));
}

TEST(TensorBoardLogger, OpenedAgainWritesAFileBesideTheFirst) {
  const TemporaryFolder folder;
  std::string before;
  for (int run = 0; run < 2; ++run) {
    TensorBoardLogger logger({.save_dir = folder.path(), .version = "0"});
    log_one(logger, run);
    logger.finalize("success");
    const auto files = event_files(logger.log_dir());
    ASSERT_EQ(files.size(), run + 1u);
    if (run == 0) before = test::content(files[0]);
    EXPECT_EQ(test::content(files[0]), before);
    EXPECT_EQ(test::records(test::content(files[run])).size(), 2u);
  }
}

TEST(TensorBoardLogger, FlushesInBatches) {
  const TemporaryFolder folder;
  TensorBoardLogger logger({.save_dir = folder.path(), .flush_every_n_rows = 3});
  for (int step = 0; step < 7; ++step) log_one(logger, step);  // the first row, then three and three
  EXPECT_EQ(events(logger.log_dir()).size(), 8u);
}

TEST(TensorBoardLogger, PutsThePrefixBeforeEveryName) {
  const TemporaryFolder folder;
  TensorBoardLogger logger({.save_dir = folder.path(), .prefix = "big"});
  log_one(logger, 0);
  const auto row = events(logger.log_dir()).at(1);
  EXPECT_NE(row.find("big-loss"), std::string::npos);
  EXPECT_NE(row.find("big-epoch"), std::string::npos);
}

TEST(TensorBoardLogger, HyperParametersMakeASessionThatEndsAsTheRunDoes) {
  const TemporaryFolder folder;
  TensorBoardLogger logger({.save_dir = folder.path()});
  logger.log_hyperparams({{"lr", 0.5}});
  const auto started = events(logger.log_dir());
  ASSERT_EQ(started.size(), 4u);
  EXPECT_NE(started[1].find("hp_metric"), std::string::npos);
  EXPECT_NE(started[2].find("_hparams_/experiment"), std::string::npos);
  EXPECT_NE(started[3].find("_hparams_/session_start_info"), std::string::npos);
  EXPECT_EQ(test::content(logger.log_dir() / "hparams.yaml"), "lr: 0.5\n");
  logger.finalize("failed");
  logger.finalize("success");
  const auto ended = events(logger.log_dir());
  ASSERT_EQ(ended.size(), 5u);
  EXPECT_NE(ended[4].find(std::string("\x22\x0b\x08\x02\x11", 5)), std::string::npos);  // STATUS_FAILURE
}

TEST(TensorBoardLogger, HyperParametersNeedAColumnForASession) {
  const TemporaryFolder folder;
  TensorBoardLogger logger({.save_dir = folder.path(), .default_hp_metric = false});
  logger.log_hyperparams({{"lr", 0.5}});
  EXPECT_EQ(events(logger.log_dir()).size(), 1u);
  EXPECT_TRUE(fs::exists(logger.log_dir() / "hparams.yaml"));
  logger.log_hyperparams({{"lr", 0.5}}, std::vector<Metric>{{"best", 0.25}});
  EXPECT_NE(events(logger.log_dir()).at(1).find("best"), std::string::npos);
}

TEST(TensorBoardLogger, NamesAFolderThatCannotBeMade) {
  const TemporaryFolder folder;
  const TensorBoardLogger logger({.save_dir = folder.file("file", "")});
  test::expect_error<IoError>([&] { (void)logger.version(); }, {(folder / "file").string()});
}

}  // namespace
}  // namespace lockstep
