#include "launch/guarded.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "launch/forked_ranks.h"
#include "launch/orphans.h"
#include "launch/signal_scope.h"

namespace lockstep::launch {
namespace {

constexpr int kKilled = 128;

// Also where both processes have been stopped, this one sees to the ranks when the first one is killed.
void wake_at_end_of_first_process() { ::prctl(PR_SET_PDEATHSIG, SIGCONT); }

[[noreturn]] void be_supervisor(const std::function<int(LauncherEvents&)>& body, SignalScope& signals,
                                UniqueFd first_process) {
  adopt_orphans();
  Lifeline lifeline(std::move(first_process));
  LauncherEvents events(signals);
  events.add(lifeline);
  const int code = guard_rank([&] { return body(events); });
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(code);
}

// A terminal tells both processes itself.
void pass_on(SignalScope& signals, pid_t supervisor) {
  while (const auto request = signals.next())
    if (!request->from_terminal) ::kill(supervisor, request->signal);
}

int wait_for(pid_t supervisor, SignalScope& signals) {
  // By number: glibc 2.36 declares the function without extern "C".
  const UniqueFd its_end(static_cast<int>(::syscall(SYS_pidfd_open, supervisor, 0)));
  if (!its_end) throw_errno("cannot watch the supervisor of the ranks", "Linux 5.3 or newer is needed");
  std::array<pollfd, 2> watched{{{.fd = its_end.get(), .events = POLLIN, .revents = 0},
                                 {.fd = signals.fd(), .events = POLLIN, .revents = 0}}};
  while (watched[0].revents == 0) {
    ::poll(watched.data(), watched.size(), -1);
    pass_on(signals, supervisor);
  }
  int status = 0;
  ::waitpid(supervisor, &status, 0);
  return WIFSIGNALED(status) ? kKilled + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

void Lifeline::add_to(std::vector<pollfd>& watched) const {
  watched.push_back({.fd = first_process_.get(), .events = POLLIN, .revents = 0});
}

void Lifeline::look() {
  char none = 0;
  if (::read(first_process_.get(), &none, 1) != 0) return;  // the pipe is open still
  kill_descendants();
  ::_exit(kKilled + SIGKILL);
}

int run_guarded(const std::function<int(LauncherEvents&)>& body) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_errno("cannot make a pipe");
  UniqueFd reader(ends[0]), writer(ends[1]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  std::cout.flush();
  std::fflush(nullptr);
  ignore_refused_writes();  // a reader that goes away must not end a run
  SignalScope signals;
  signals.hold();
  const pid_t supervisor = ::fork();
  if (supervisor < 0) throw_errno("cannot start the supervisor of the ranks");
  if (supervisor == 0) {
    signals.renew_in_child();
    writer.reset();
    wake_at_end_of_first_process();
    be_supervisor(body, signals, std::move(reader));
  }
  signals.release();
  adopt_orphans();
  const int code = wait_for(supervisor, signals);
  if (code != 0) kill_descendants();
  return code;
}

}  // namespace lockstep::launch
