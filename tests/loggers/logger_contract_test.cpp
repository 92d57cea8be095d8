// What every logger must do. A logger of lockstep that is not in kKinds fails the last test.
#include <gtest/gtest.h>
#include <lockstep/loggers/loggers.h>
#include <signal.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <sstream>

#include "records.h"
#include "support/file_size_limit.h"
#include "support/forked.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

// The only file below `folder` whose name begins with `name`; empty where there is none yet.
fs::path find_file(const fs::path& folder, const std::string& name) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().filename().string().starts_with(name)) return entry.path();
  }
  return {};
}

std::vector<std::string> lines(const fs::path& file) {
  std::istringstream text(test::content(file));
  std::vector<std::string> found;
  for (std::string line; std::getline(text, line);) found.push_back(line);
  return found;
}

// The rows of metrics.csv: all but the header.
std::vector<std::string> csv_rows(const fs::path& folder) {
  auto found = lines(folder / "metrics.csv");
  if (!found.empty()) found.erase(found.begin());
  return found;
}

std::vector<std::string> event_rows(const fs::path& folder) {
  auto found = test::records(test::content(find_file(folder, "events.")));
  std::erase_if(found, [](const std::string& event) { return event.find("loss") == std::string::npos; });
  return found;
}

struct Kind {
  std::string name;
  std::function<std::unique_ptr<Logger>(const fs::path&)> make;
  std::function<std::vector<std::string>(const fs::path&)> rows;  // those in the folder, for readers

  friend void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }
};

const std::vector<Kind> kKinds{
    {"csv", [](const fs::path& folder) { return std::make_unique<CsvLogger>(folder); }, csv_rows},
    {"jsonl", [](const fs::path& folder) { return std::make_unique<JsonlLogger>(folder); },
     [](const fs::path& folder) { return lines(folder / "metrics.jsonl"); }},
    {"tensorboard",
     [](const fs::path& folder) {
       return std::make_unique<TensorBoardLogger>(TensorBoardOptions{.save_dir = folder});
     },
     event_rows},
    {"mlflow",
     [](const fs::path& folder) {
       return std::make_unique<MlflowLogger>(MlflowOptions{.save_dir = folder / "m"});
     },
     [](const fs::path& folder) { return lines(find_file(folder, "loss")); }},
};

class LoggerContract : public ::testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<Logger> make() const { return GetParam().make(folder_.path()); }
  std::vector<std::string> rows() const { return GetParam().rows(folder_.path()); }

  static void log_rows(Logger& logger, int first, int last) {
    for (int step = first; step < last; ++step) {
      logger.log_metrics(std::vector<Metric>{{"loss", step + 0.5}, {"lr", 0.25}}, 0, step);
    }
  }

  TemporaryFolder folder_;
};

TEST_P(LoggerContract, TouchesNothingBeforeItIsGivenSomething) {
  const auto logger = make();
  logger->log_metrics({}, 0, 0);
  logger->flush();
  EXPECT_EQ(folder_.entries(), 0);
}

TEST_P(LoggerContract, ShowsEveryRowThatWasFlushed) {
  const auto logger = make();
  for (int step = 0; step < 300; ++step) {
    log_rows(*logger, step, step + 1);
    if (step % 50 != 0) continue;
    logger->flush();
    EXPECT_EQ(rows().size(), step + 1u);
  }
  logger->finalize("success");
  EXPECT_EQ(rows().size(), 300u);
}

TEST_P(LoggerContract, GoesOnAfterTheEnd) {  // fit, then test
  const auto logger = make();
  for (int run = 0; run < 2; ++run) {
    log_rows(*logger, run, run + 1);
    logger->finalize("success");
  }
  EXPECT_EQ(rows().size(), 2u);
}

TEST_P(LoggerContract, LosesNothingThatWasFlushedWhenItIsKilled) {
  const auto child = test::start_forked([this] {
    const auto logger = make();
    log_rows(*logger, 0, 10);
    logger->flush();
    ::raise(SIGKILL);
  });
  EXPECT_EQ(test::wait_for(child), SIGKILL);
  EXPECT_EQ(rows().size(), 10u);
}

TEST_P(LoggerContract, AForkedChildWritesNothingOfItsParents) {
  auto logger = make();
  log_rows(*logger, 0, 1);
  logger->flush();
  log_rows(*logger, 1, 3);
  EXPECT_EQ(test::wait_for(test::start_forked([&] { logger.reset(); })), 0);
  logger->finalize("success");
  EXPECT_EQ(rows().size(), 3u);
}

TEST_P(LoggerContract, AFullDiskLosesNoRowAndIsReportedOnce) {
  const auto logger = make();
  log_rows(*logger, 0, 20);
  logger->flush();
  const auto before = rows();
  ASSERT_EQ(before.size(), 20u);
  ::testing::internal::CaptureStderr();
  {
    const test::FileSizeLimit full(4096);
    for (int part = 0; part < 5; ++part) {
      log_rows(*logger, 20 + 400 * part, 420 + 400 * part);
      EXPECT_NO_THROW(logger->flush());
    }
    EXPECT_NO_THROW(logger->finalize("failed"));
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  const auto warning = said.find("cannot be written");
  EXPECT_NE(warning, std::string::npos);
  EXPECT_EQ(said.find("cannot be written", warning + 1), std::string::npos) << said;
  const auto meanwhile = rows();  // whole ones, in order
  EXPECT_LT(meanwhile.size(), 2020u);
  logger->flush();
  const auto after = rows();
  EXPECT_EQ(after.size(), 2020u);
  ASSERT_TRUE(meanwhile.size() >= before.size() && after.size() >= meanwhile.size());
  EXPECT_TRUE(std::ranges::equal(before, std::span(after).first(before.size())));
  EXPECT_TRUE(std::ranges::equal(meanwhile, std::span(after).first(meanwhile.size())));
}

TEST_P(LoggerContract, APlaceThatCannotBeWrittenStopsNothing) {
  const auto logger = GetParam().make(folder_.file("file", ""));
  EXPECT_NO_THROW(logger->log_hyperparams({{"lr", 0.5}}));
  EXPECT_NO_THROW(log_rows(*logger, 0, 200));
  EXPECT_NO_THROW(logger->finalize("success"));
  EXPECT_EQ(folder_.entries(), 1);
}

TEST_P(LoggerContract, WritesWhatItHoldsOnceThePlaceIsThere) {
  const auto file = folder_.file("place", "");
  const auto logger = GetParam().make(file);
  logger->log_hyperparams({{"lr", 0.5}});
  log_rows(*logger, 0, 3);
  logger->flush();
  fs::remove(file);
  fs::create_directory(file);
  logger->finalize("success");
  EXPECT_EQ(GetParam().rows(file).size(), 3u);
}

TEST_P(LoggerContract, KeepsHyperParameters) {
  const auto logger = make();
  logger->log_hyperparams({{"lr", 0.5}, {"layers", 2}});
  logger->log_hyperparams({{"lr", 0.25}});
  const auto yaml = find_file(folder_.path(), "hparams.yaml");
  const bool one_file = !yaml.empty();
  const auto kept = test::content(one_file ? yaml : find_file(folder_.path(), "lr"));
  EXPECT_EQ(kept, one_file ? "layers: 2\nlr: 0.25\n" : "0.25");
}

TEST_P(LoggerContract, NamesOfMetricsLeadNowhere) {
  const auto logger = GetParam().make(folder_ / "inner");
  fs::create_directory(folder_ / "inner");
  logger->log_metrics(std::vector<Metric>{{"../../../evil", 1}, {"/evil", 2}}, 0, 0);
  logger->finalize("success");
  EXPECT_EQ(folder_.entries(), 1);
  EXPECT_FALSE(fs::exists("/evil"));
}

INSTANTIATE_TEST_SUITE_P(All, LoggerContract, ::testing::ValuesIn(kKinds),
                         [](const auto& row) { return row.param.name; });

TEST(LoggerContractList, HasEveryLogger) {
  std::ifstream header(test::in_repository("include/lockstep/loggers/loggers.h"));
  std::size_t classes = 0;
  for (std::string line; std::getline(header, line);) classes += line.find(": public Logger {") != line.npos;
  EXPECT_EQ(classes, kKinds.size());
}

}  // namespace
}  // namespace lockstep
