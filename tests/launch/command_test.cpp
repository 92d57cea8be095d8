// Programs that are run and waited for.
#include <gtest/gtest.h>

#include <csignal>

#include <lockstep/base/error.h>

#include "launch/command.h"
#include "support/expect_error.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using test::expect_error;

TEST(Command, TellsExitCodeAndOutput) {
  const auto result = run_command({"sh", "-c", "echo said; echo warned >&2; exit 3"}, 10s);
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.output, "said\nwarned\n");
}

TEST(Command, GivesWordsAsTheyAre) {
  EXPECT_EQ(run_command({"printf", "%s", "$HOME; 'a' *"}, 10s).output, "$HOME; 'a' *");
}

TEST(Command, KeepsTheBeginningOfALongOutput) {
  EXPECT_EQ(run_command({"head", "-c", "100000", "/dev/zero"}, 10s).output.size(), 4096);
}

TEST(Command, TellsTheSignal) { EXPECT_EQ(run_command({"sh", "-c", "kill -KILL $$"}, 10s).status, 137); }

// The scheduler's tools must not inherit what a rank has set for itself.
TEST(Command, BeginsWithSignalsAsTheyAreByDefault) {
  const auto earlier = std::signal(SIGTERM, SIG_IGN);
  EXPECT_EQ(run_command({"sh", "-c", "kill -TERM $$"}, 10s).status, 143);
  std::signal(SIGTERM, earlier);
}

TEST(Command, NamesAProgramThatIsNotThere) {
  expect_error<Error>([] { run_command({"no-such-program"}, 10s); }, {"no-such-program", "No such file"});
}

TEST(Command, IsKilledWhenTheDeadlineIsOver) {
  const auto start = std::chrono::steady_clock::now();
  expect_error<Error>([] { run_command({"sleep", "60"}, 100ms); }, {"sleep", "100 ms"});
  expect_error<Error>([] { run_command({"sh", "-c", "exec >&- 2>&-; exec sleep 60"}, 100ms); }, {"100 ms"});
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

}  // namespace
}  // namespace lockstep::launch
