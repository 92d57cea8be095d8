// Forks the ranks of a test, watches them and reports how they ended.
#include "testing/rank_job.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <optional>

namespace lockstep::testing {
namespace {

using Clock = std::chrono::steady_clock;
using launch::throw_errno;

struct ListenSocket {
  UniqueFd fd;
  int port = 0;
};

ListenSocket listen_on_any_port(int ranks) {
  ListenSocket result{.fd = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof(address);
  if (!result.fd || ::bind(result.fd.get(), generic, length) != 0 ||
      ::listen(result.fd.get(), ranks + 16) != 0 || ::getsockname(result.fd.get(), generic, &length) != 0) {
    throw_errno("cannot listen for the ranks");
  }
  result.port = ntohs(address.sin_port);
  return result;
}

std::string read_file(int fd) {
  struct stat file {};
  if (::fstat(fd, &file) != 0) throw_errno("cannot read the report of a rank");
  std::string bytes(static_cast<std::size_t>(file.st_size), '\0');
  const auto got = ::pread(fd, bytes.data(), bytes.size(), 0);
  if (got != file.st_size) throw_errno("cannot read the report of a rank");
  return bytes;
}

struct Child {
  pid_t pid = -1;
  UniqueFd report;
  bool has_ended = false;
  bool was_stuck = false;  // killed because it was stuck
  int wait_status = 0;
};

// Kills and reaps what is left of the ranks when it goes out of scope.
class ForkedRanks {
 public:
  ForkedRanks(const RankJob& job, const AssertionCatcher& catcher)
      : job_(job), slots_(job.ranks), deadline_(Clock::now() + job.options.deadline) {
    const auto body = find_rank_body(job.name);
    auto socket = listen_on_any_port(job.ranks);
    for (int rank = 0; rank < job.ranks; ++rank) start(rank, body, socket, catcher);
  }
  ForkedRanks(const ForkedRanks&) = delete;
  ~ForkedRanks() { kill_all(); }

  JobReport run() {
    while (any_alive()) {
      collect_ended();
      if (const auto rank = find_absent()) return fail(JobFailure::kOther, absent(*rank));
      kill_victim_if_alone();
      if (!any_alive()) break;
      if (Clock::now() >= deadline_) return fail(JobFailure::kTimeout, late());
      sleep_until_event();
    }
    return report();
  }

 private:
  void start(int rank, RankBody body, const ListenSocket& socket, const AssertionCatcher& catcher);
  void collect_ended();
  void kill_victim_if_alone();
  void kill_all() noexcept;
  void sleep_until_event() const;
  bool any_alive() const { return std::ranges::any_of(children_, std::not_fn(&Child::has_ended)); }
  std::optional<int> find_absent() const;
  RankResult result_of(int rank, std::string& failed_assertions) const;
  JobReport report() const;
  JobReport fail(JobFailure failure, const std::string& what) const;

  std::string title() const { return "fork_ranks: body \"" + job_.name + "\""; }
  std::string absent(int rank) const { return title() + ": rank " + std::to_string(rank) + " did not start"; }
  std::string late() const {
    return title() + " not done within " + std::to_string(job_.options.deadline.count()) + " ms";
  }
  std::string describe(int rank) const;

  const RankJob& job_;
  SharedSlots slots_;
  Clock::time_point deadline_;
  std::vector<Child> children_;
};

void ForkedRanks::start(int rank, RankBody body, const ListenSocket& socket,
                        const AssertionCatcher& catcher) {
  Child child{.report = UniqueFd(::memfd_create("rank-report", MFD_CLOEXEC))};
  if (!child.report) throw_errno("cannot start rank " + std::to_string(rank));
  const pid_t zygote = ::getpid();
  child.pid = ::fork();
  if (child.pid < 0) throw_errno("cannot start rank " + std::to_string(rank), "check ulimit -u and memory");
  if (child.pid > 0) {
    children_.push_back(std::move(child));
    return;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != zygote)
    ::_exit(128 + SIGKILL);  // the zygote died before the kernel was asked to kill this process with it
  ::prctl(PR_SET_NAME, ("rank-" + std::to_string(rank)).c_str());
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  run_forked_rank({.job = job_,
                   .catcher = catcher,
                   .body = body,
                   .rank = rank,
                   .slot = slots_[rank],
                   .report_fd = child.report.get(),
                   .port = socket.port,
                   .listen_fd = socket.fd.get()});
}

void ForkedRanks::collect_ended() {
  for (auto& child : children_) {
    if (!child.has_ended) child.has_ended = ::waitpid(child.pid, &child.wait_status, WNOHANG) == child.pid;
  }
}

// A rank that ended before it was connected; its peers would wait for it until their timeout.
std::optional<int> ForkedRanks::find_absent() const {
  for (int rank = 0; rank < job_.ranks; ++rank) {
    if (children_[rank].has_ended && !slots_[rank].has_joined) return rank;
  }
  return std::nullopt;
}

// Kills a rank with a kStop or kHang fault when all others have ended.
void ForkedRanks::kill_victim_if_alone() {
  const auto& fault = job_.options.fault;
  if (fault.kind != FaultKind::kStop && fault.kind != FaultKind::kHang) return;
  if (std::ranges::count_if(children_, std::not_fn(&Child::has_ended)) != 1) return;
  auto& victim = children_[static_cast<std::size_t>(fault.rank)];
  if (victim.has_ended || !slots_[fault.rank].has_met_fault) return;
  victim.was_stuck = true;
  kill_all();
}

void ForkedRanks::kill_all() noexcept {
  for (const auto& child : children_) {
    if (!child.has_ended) ::kill(child.pid, SIGKILL);
  }
  for (auto& child : children_) {
    while (!child.has_ended) child.has_ended = ::waitpid(child.pid, &child.wait_status, 0) == child.pid;
  }
}

void ForkedRanks::sleep_until_event() const {
  const auto left = std::max(deadline_ - Clock::now(), Clock::duration::zero());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
  const timespec timeout{.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
  sigset_t child_ended;
  ::sigemptyset(&child_ended);
  ::sigaddset(&child_ended, SIGCHLD);
  ::sigtimedwait(&child_ended, nullptr, &timeout);  // an interrupted wait only leads to an early check
}

std::string ForkedRanks::describe(int rank) const {
  const auto& child = children_[static_cast<std::size_t>(rank)];
  const auto& slot = slots_[rank];
  auto text = "rank " + std::to_string(rank) + ' ';
  if (!child.has_ended) return text + (slot.has_joined ? whereabouts(slot.status) : "joining");
  if (WIFSIGNALED(child.wait_status)) {
    return text + "killed by signal " + std::to_string(WTERMSIG(child.wait_status)) + ' ' +
           whereabouts(slot.status);
  }
  if (slot.status.error[0] != '\0') return text + "failed: " + slot.status.error;
  return text + "exited with code " + std::to_string(WEXITSTATUS(child.wait_status));
}

JobReport ForkedRanks::fail(JobFailure failure, const std::string& what) const {
  std::string got;
  for (int rank = 0; rank < job_.ranks; ++rank) got += (rank == 0 ? "" : ", ") + describe(rank);
  return {.failure = failure, .what = what, .got = got};
}

RankResult ForkedRanks::result_of(int rank, std::string& failed_assertions) const {
  const auto& child = children_[static_cast<std::size_t>(rank)];
  const auto& slot = slots_[rank];
  RankResult result{
      .outcome = slot.status.outcome, .was_stuck = child.was_stuck, .whereabouts = whereabouts(slot.status)};
  if (WIFSIGNALED(child.wait_status)) result.signal = WTERMSIG(child.wait_status);
  if (WIFEXITED(child.wait_status)) result.exit_code = WEXITSTATUS(child.wait_status);
  const auto bytes = read_file(child.report.get());
  if (bytes.empty()) return result;  // the rank died
  auto said = RankReport::unpacked(Packet(bytes));
  result.result = std::move(said.result);
  result.error = std::move(said.error);
  for (const auto& failed : said.failed_assertions) {
    failed_assertions += "\nrank " + std::to_string(rank) + ": " + failed;
  }
  return result;
}

JobReport ForkedRanks::report() const {
  JobReport report;
  std::string failed_assertions;
  for (int rank = 0; rank < job_.ranks; ++rank) {
    report.ranks.push_back(result_of(rank, failed_assertions));
  }
  const auto& fault = job_.options.fault;
  if (!failed_assertions.empty()) {
    report.failure = JobFailure::kOther;
    report.what = title() + ": assertions failed";
    report.got = failed_assertions;
  } else if (fault.kind != FaultKind::kNone && !slots_[fault.rank].has_met_fault) {
    return fail(JobFailure::kOther, title() + ": rank " + std::to_string(fault.rank) +
                                        " did not come to step " + std::to_string(fault.step) +
                                        " of its fault");
  }
  return report;
}

}  // namespace

JobReport run_job(const RankJob& job, const AssertionCatcher& catcher) noexcept {
  try {
    return ForkedRanks(job, catcher).run();
  } catch (const std::exception& error) {
    return {
        .failure = JobFailure::kOther, .what = "fork_ranks: ranks cannot be started", .got = error.what()};
  }
}

}  // namespace lockstep::testing
