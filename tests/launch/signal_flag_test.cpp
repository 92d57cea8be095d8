// Signals that set a flag, raised for real.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>

#include "launch/signals.h"

namespace lockstep::launch {
namespace {

volatile std::sig_atomic_t calls = 0;
volatile std::sig_atomic_t told_sender = 0;

void count(int) { calls = calls + 1; }
void note_sender(int, siginfo_t* info, void*) { told_sender = info->si_pid; }

/// What becomes of a process that does `body`: its exit code, or 128 + the signal that ended it.
int status_of(void (*body)()) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(SignalFlag, IsSetAndNothingElseHappens) {
  EXPECT_EQ(status_of([] {
              const SignalFlag flag(SIGTERM);
              if (is_flagged(SIGTERM)) ::_exit(1);
              std::raise(SIGTERM);
              if (!is_flagged(SIGTERM)) ::_exit(2);
              lower_flag(SIGTERM);
              if (is_flagged(SIGTERM)) ::_exit(3);
            }),
            0);
}

TEST(SignalFlag, PutsTheDefaultBack) {
  EXPECT_EQ(status_of([] {
              { const SignalFlag flag(SIGTERM); }
              std::raise(SIGTERM);
            }),
            143);
}

TEST(SignalFlag, HandsOnWhatNobodyHasHeeded) {
  EXPECT_EQ(status_of([] {
              SignalFlag flag(SIGUSR1);
              std::raise(SIGUSR1);
              flag.hand_on();
            }),
            128 + SIGUSR1);
  EXPECT_EQ(status_of([] {
              SignalFlag flag(SIGUSR1);
              std::raise(SIGUSR1);
              lower_flag(SIGUSR1);
              flag.hand_on();
            }),
            0);
}

TEST(SignalFlag, CallsTheProgramsHandlerAsWellAndPutsItBack) {
  const auto earlier = std::signal(SIGUSR2, count);
  calls = 0;
  {
    SignalFlag flag(SIGUSR2);
    std::raise(SIGUSR2);
    EXPECT_TRUE(is_flagged(SIGUSR2));
    EXPECT_EQ(calls, 1);
    flag.hand_on();  // the handler knows already
    EXPECT_EQ(calls, 1);
  }
  std::raise(SIGUSR2);
  EXPECT_EQ(calls, 2);
  std::signal(SIGUSR2, earlier);
}

TEST(SignalFlag, TellsTheProgramsHandlerWhoHasSentIt) {
  struct sigaction action {
  }, earlier{};
  action.sa_sigaction = note_sender;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGUSR2, &action, &earlier);
  {
    const SignalFlag flag(SIGUSR2);
    ::kill(::getpid(), SIGUSR2);
  }
  EXPECT_EQ(told_sender, ::getpid());
  ::sigaction(SIGUSR2, &earlier, nullptr);
}

TEST(SignalFlag, LeavesAHandlerAloneThatTheProgramHasSetMeanwhile) {
  const auto earlier = std::signal(SIGUSR2, SIG_DFL);
  {
    const SignalFlag flag(SIGUSR2);
    std::signal(SIGUSR2, count);
  }
  calls = 0;
  std::raise(SIGUSR2);
  EXPECT_EQ(calls, 1);
  std::signal(SIGUSR2, earlier);
}

TEST(SignalFlag, KeepsASignalIgnored) {
  const auto earlier = std::signal(SIGUSR2, SIG_IGN);
  const SignalFlag flag(SIGUSR2);
  std::raise(SIGUSR2);
  EXPECT_FALSE(is_flagged(SIGUSR2));
  std::signal(SIGUSR2, earlier);
}

TEST(SignalFlag, LastOfSeveralPutsTheHandlerBack) {
  const auto earlier = std::signal(SIGUSR2, count);
  calls = 0;
  std::optional<SignalFlag> first(SIGUSR2), second(SIGUSR2);
  first.reset();
  std::raise(SIGUSR2);
  EXPECT_TRUE(is_flagged(SIGUSR2));
  EXPECT_EQ(calls, 1);
  second.reset();
  std::raise(SIGUSR2);
  EXPECT_EQ(calls, 2);
  std::signal(SIGUSR2, earlier);
}

}  // namespace
}  // namespace lockstep::launch
