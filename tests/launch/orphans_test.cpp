// Processes that ranks have left behind, and numbers of processes that come again.
#include "launch/orphans.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::launch {
namespace {

// A child that has ended and was not waited for.
class EndedChild {
 public:
  EndedChild() : pid_(::fork()) {
    if (pid_ == 0) ::_exit(0);
    siginfo_t info{};
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT), 0);
  }
  ~EndedChild() { wait(); }

  pid_t pid() const { return pid_; }
  UniqueFd pidfd() const { return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0))); }
  /// Whether it was there still.
  bool wait() const { return ::waitpid(pid_, nullptr, WNOHANG) == pid_; }

 private:
  pid_t pid_;
};

std::vector<RankProcess> as_rank(pid_t pid, UniqueFd pidfd) {
  std::vector<RankProcess> ranks(1);
  ranks.front().pid = pid;
  ranks.front().pidfd = std::move(pidfd);
  return ranks;
}

TEST(OrphanReaper, LeavesARankToItsSupervisor) {
  OrphanReaper reaper;
  const EndedChild rank;
  reaper.leave_alone(as_rank(rank.pid(), rank.pidfd()));
  reaper.look();
  EXPECT_TRUE(rank.wait());
}

TEST(OrphanReaper, WaitsForOthers) {
  OrphanReaper reaper;
  const EndedChild orphan;
  reaper.look();
  EXPECT_FALSE(orphan.wait());
}

// Nobody is told of a child that ended before there was a handler.
TEST(OrphanReaper, LooksFirstForThoseThatEndedBefore) {
  const EndedChild orphan;
  const OrphanReaper reaper;
  std::vector<pollfd> watched;
  reaper.add_to(watched);
  EXPECT_EQ(::poll(watched.data(), watched.size(), 0), 1);
}

TEST(OrphanReaper, WhoGetsTheNumberOfARankThatIsGoneIsNoRank) {
  OrphanReaper reaper;
  const EndedChild rank;
  auto pidfd = rank.pidfd();
  ASSERT_TRUE(rank.wait());
  const EndedChild orphan;
  reaper.leave_alone(as_rank(orphan.pid(), std::move(pidfd)));  // as if it had got the rank's number
  reaper.look();
  EXPECT_FALSE(orphan.wait());
}

}  // namespace
}  // namespace lockstep::launch
