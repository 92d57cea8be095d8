#include "launch/orphans.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

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

// Its numbers from the PID namespace that /proc was mounted for to its own one.
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

// A container's /proc may be that of its host (`unshare --pid` without `--mount-proc`), which counts
// otherwise.
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

// A handler can reach nothing but globals.
std::atomic<int> end_pipe{-1};

void on_child(int) {
  const int saved = errno;
  [[maybe_unused]] const auto written = ::write(end_pipe.load(), "", 1);
  errno = saved;
}

// A child that has ended and is still to be waited for; 0: none.
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

// A process that was waited for is no child any more, whoever has its number now.
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

// A rank that has ended hides those behind it: the pipe stays readable until it is waited for.
void OrphanReaper::look() {
  for (pid_t pid = ended_child(); pid != 0; pid = ended_child()) {
    if (is_rank(pid)) return;
    ::waitpid(pid, nullptr, WNOHANG);
  }
  std::array<char, 64> ends;
  while (::read(read_end_.get(), ends.data(), ends.size()) > 0) {
  }
}

}  // namespace lockstep::launch
