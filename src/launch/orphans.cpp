#include "launch/orphans.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "launch/signals.h"
#include "launch/supervisor.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

void add_children(const std::filesystem::path& process, std::vector<pid_t>& found) {
  std::error_code gone;
  for (const auto& thread : std::filesystem::directory_iterator(process / "task", gone)) {
    std::ifstream children(thread.path() / "children");
    for (pid_t child; children >> child;) found.push_back(child);
  }
}

// The process numbers of `process`, from the PID namespace that /proc was mounted for to its own.
std::vector<pid_t> numbers_of(const std::filesystem::path& process) {
  constexpr std::string_view kTitle = "NSpid:";
  std::ifstream status(process / "status");
  std::vector<pid_t> numbers;
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(kTitle)) continue;
    std::istringstream text(line.substr(kTitle.size()));
    for (pid_t number; text >> number;) numbers.push_back(number);
  }
  return numbers;
}

// The numbers in the PID namespace of this process. The /proc of a container may be that of its host
// (`unshare --pid` without `--mount-proc`), with other numbers.
std::vector<pid_t> numbers_here(const std::vector<pid_t>& found) {
  const auto depth = numbers_of("/proc/self").size();
  if (depth < 2) return found;
  std::vector<pid_t> numbers;
  for (const pid_t pid : found) {
    const auto all = numbers_of("/proc/" + std::to_string(pid));
    if (all.size() >= depth) numbers.push_back(all[depth - 1]);
  }
  return numbers;
}

std::vector<pid_t> descendants() {
  std::vector<pid_t> found;
  add_children("/proc/self", found);
  for (std::size_t i = 0; i < found.size(); ++i) add_children("/proc/" + std::to_string(found[i]), found);
  return numbers_here(found);
}

}  // namespace

void adopt_orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

void kill_descendants() {
  const auto end = std::chrono::steady_clock::now() + 1s;
  while (std::chrono::steady_clock::now() < end) {
    const auto found = descendants();
    for (const pid_t pid : found) ::kill(pid, SIGKILL);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (found.empty()) return;
    std::this_thread::sleep_for(1ms);
  }
}

namespace {

// A global, since signal handlers have no arguments of their own.
std::atomic<int> end_pipe{-1};

void on_child(int) {
  const int saved = errno;
  [[maybe_unused]] const auto written = ::write(end_pipe.load(), "", 1);
  errno = saved;
}

// A child that has ended and was not waited for yet; 0 where there is none.
pid_t ended_child() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 ? info.si_pid : 0;
}

}  // namespace

OrphanReaper::OrphanReaper() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw_errno("cannot make a pipe");
  read_end_ = UniqueFd(ends[0]);
  write_end_ = UniqueFd(ends[1]);
  end_pipe.store(ends[1]);
  struct sigaction action {};
  action.sa_handler = on_child;
  action.sa_flags = SA_RESTART | SA_NOCLDSTOP;
  ::sigaction(SIGCHLD, &action, &old_);
  on_child(SIGCHLD);  // for those that ended before
}

OrphanReaper::~OrphanReaper() {
  ::sigaction(SIGCHLD, &old_, nullptr);
  end_pipe.store(-1);
}

void OrphanReaper::add_to(std::vector<pollfd>& watched) const {
  watched.push_back({.fd = read_end_.get(), .events = POLLIN, .revents = 0});
}

void OrphanReaper::leave_alone(const std::vector<RankProcess>& ranks) {
  ranks_.clear();
  for (const auto& process : ranks) {
    UniqueFd copy(::fcntl(process.pidfd.get(), F_DUPFD_CLOEXEC, 0));
    if (!copy) throw_errno("cannot watch a rank");
    ranks_[process.pid] = std::move(copy);
  }
}

// A process that was waited for is no longer a child, and its number may belong to another process now.
bool OrphanReaper::is_rank(pid_t pid) {
  constexpr auto kPidFd = static_cast<idtype_t>(3);  // P_PIDFD, which older headers lack
  const auto found = ranks_.find(pid);
  if (found == ranks_.end()) return false;
  siginfo_t info{};
  const auto id = static_cast<id_t>(found->second.get());
  if (::waitid(kPidFd, id, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD) return true;
  ranks_.erase(found);
  return false;
}

// A rank that has ended hides the orphans behind it; the pipe stays readable until the supervisor has waited
// for the rank.
void OrphanReaper::look() {
  for (pid_t pid = ended_child(); pid != 0; pid = ended_child()) {
    if (is_rank(pid)) return;
    ::waitpid(pid, nullptr, WNOHANG);
  }
  std::array<char, 64> ends;
  while (::read(read_end_.get(), ends.data(), ends.size()) > 0) {
  }
}

namespace {

// Wakes this process, should both have been stopped, when the first one is killed, so that it can stop the
// ranks.
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

// A terminal sends its signals to both processes itself.
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
  return WIFSIGNALED(status) ? kExitSignalled + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

void Lifeline::add_to(std::vector<pollfd>& watched) const {
  watched.push_back({.fd = first_process_.get(), .events = POLLIN, .revents = 0});
}

void Lifeline::look() {
  char none = 0;
  if (::read(first_process_.get(), &none, 1) != 0) return;  // the pipe is still open
  kill_descendants();
  ::_exit(kExitSignalled + SIGKILL);
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
