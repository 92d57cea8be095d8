#include <lockstep/base/log.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <thread>

#include <gmock/gmock.h>
#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Log : public ::testing::Test {
 protected:
  ~Log() override { configure_log({}); }

  template <class Call>
  static std::string stderr_of(const Call& call) {
    ::testing::internal::CaptureStderr();
    call();
    return ::testing::internal::GetCapturedStderr();
  }

  static std::string all_levels() {
    return stderr_of([] {
      log_debug("d");
      log_info("i");
      log_warning("w");
      log_error("e");
    });
  }
};

TEST_F(Log, PrintsInfoOnRankZeroAndWarningsOnAll) {
  EXPECT_EQ(all_levels(), "i\nwarning: w\nerror: e\n");
  configure_log({.rank = 0, .world_size = 2});
  EXPECT_EQ(all_levels(), "[rank 0] i\n[rank 0] warning: w\n[rank 0] error: e\n");
  configure_log({.rank = 1, .world_size = 2});
  EXPECT_EQ(all_levels(), "[rank 1] warning: w\n[rank 1] error: e\n");
}

TEST_F(Log, TakesItsLevelFromTheEnvironmentThenFromCode) {
  configure_log({.level = LogLevel::kError});
  EXPECT_EQ(all_levels(), "error: e\n");
  env::set("LOCKSTEP_LOG_LEVEL", "debug");
  configure_log({.level = LogLevel::kError});
  EXPECT_EQ(all_levels(), "d\ni\nwarning: w\nerror: e\n");
  env::set("LOCKSTEP_LOG_LEVEL", "warn");
  try {
    configure_log({});
    ADD_FAILURE() << "accepted warn";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("LOCKSTEP_LOG_LEVEL; expected one of debug, info"));
  }
  env::unset("LOCKSTEP_LOG_LEVEL");
}

TEST_F(Log, WritesEverythingWithTimeStampsToTheFile) {
  const test::TemporaryFolder folder;
  const auto file = (folder / "logs/rank_1.log").string();
  configure_log({.rank = 1, .world_size = 2, .level = {}, .file = file});
  all_levels();
  log_debug("{} is no format");
  std::ifstream stream(file);
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  EXPECT_THAT(text, ::testing::ContainsRegex("20[0-9-]*T[0-9:.]*[+-][0-9:]* .debug. d\n"));
  EXPECT_THAT(text, HasSubstr("[error] error: e\n"));
  EXPECT_THAT(text, HasSubstr("{} is no format"));
  try {
    configure_log({.file = "/dev/null/x.log"});
    ADD_FAILURE() << "opened /dev/null/x.log";
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/dev/null/x.log"));
  }
}

TEST_F(Log, WarnsOnceForEachKey) {
  const auto text = stderr_of([] {
    warn_once("log_test.a", "first");
    warn_once("log_test.a", "second");
    warn_once("log_test.b", "third");
  });
  EXPECT_EQ(text, "warning: first\nwarning: third\n");
}

// Whether the child exits by itself within a minute; kills it otherwise.
bool ends_well(pid_t child) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  int status = -1;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(Log, WorksInChildrenForkedWhileAnotherThreadLogs) {
  int well = 0;
  const auto text = stderr_of([&] {
    std::atomic<bool> stop{false};
    std::thread busy([&] {
      while (!stop) log_info("busy");
    });
    for (int i = 0; i < 50; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        log_info("child");
        _exit(0);
      }
      well += ends_well(child);
    }
    stop = true;
    busy.join();
  });
  EXPECT_EQ(well, 50);
  EXPECT_THAT(text, HasSubstr("child\n"));
}

}  // namespace
}  // namespace lockstep
