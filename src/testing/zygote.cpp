// The process from which ranks of tests are forked.
#include "testing/rank_job.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <mutex>
#include <optional>

#include <lockstep/base/error.h>
#include <lockstep/launch/launch.h>
#include <lockstep/testing/fork_ranks.h>

#include "launch/posix.h"

namespace lockstep::testing {
namespace {

// How much longer than its own deadline the zygote may take to answer.
constexpr auto kPatience = std::chrono::seconds(30);

struct Zygote {
  std::mutex mutex;  // guards `socket`
  UniqueFd socket;   // the end of the test process
};

Zygote& zygote() {
  static Zygote the_only;
  return the_only;
}

// A message is its length and its bytes. False: the other side is gone.
bool send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
    if (sent < 0 && errno != EINTR) return false;
  }
  return true;
}

bool send_message(int socket, const Packet& packet) {
  return send_all(socket, Packet().put(packet.bytes()).bytes());
}

bool receive_all(int socket, char* to, std::size_t size) {
  while (size > 0) {
    const auto got = ::recv(socket, to, size, 0);
    if (got == 0 || (got < 0 && errno != EINTR)) return false;
    if (got < 0) continue;
    to += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

std::optional<Packet> receive_message(int socket) {
  std::string bytes(sizeof(std::int64_t), '\0');
  if (!receive_all(socket, bytes.data(), bytes.size())) return std::nullopt;
  bytes.resize(static_cast<std::size_t>(Packet(bytes).take_number()));
  if (!receive_all(socket, bytes.data(), bytes.size())) return std::nullopt;
  return Packet(std::move(bytes));
}

// noexcept: nothing may unwind into main(), of which this is a copy.
[[noreturn]] void serve(int socket, pid_t parent, const AssertionCatcher& catcher) noexcept {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent)
    ::_exit(1);  // the test process died before the kernel was asked to kill this one with it
  ::prctl(PR_SET_NAME, "zygote");
  const rlimit no_core{};
  ::setrlimit(RLIMIT_CORE, &no_core);
  sigset_t child_ended;
  ::sigemptyset(&child_ended);
  ::sigaddset(&child_ended, SIGCHLD);
  ::signal(SIGCHLD, SIG_DFL);  // ignored, it would make ranks vanish before they are asked how they ended
  ::sigprocmask(SIG_BLOCK, &child_ended, nullptr);  // run_job() waits for it
  while (auto message = receive_message(socket)) {
    const auto job = RankJob::unpacked(std::move(*message));
    if (!send_message(socket, run_job(job, catcher).packed())) break;
  }
  ::_exit(0);
}

void refuse(bool is_wrong, const char* what) {
  if (!is_wrong) return;
  throw ConfigError("testing",
                    {.what = what, .hint = "call testing::start_zygote() once, first thing in main()"});
}

bool answers_within(int socket, std::chrono::milliseconds timeout) {
  pollfd watched{.fd = socket, .events = POLLIN, .revents = 0};
  return ::poll(&watched, 1, static_cast<int>(timeout.count())) > 0;
}

}  // namespace

void start_zygote(AssertionCatcher catcher) {
  refuse(!can_fork(), "start_zygote: this process has several threads");
  const std::lock_guard lock(zygote().mutex);
  refuse(static_cast<bool>(zygote().socket), "start_zygote: there is a zygote already");
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    launch::throw_errno("cannot start the zygote");
  }
  UniqueFd mine(ends[0]), its(ends[1]);
  std::cout.flush();  // or every rank would print the buffers' contents again
  std::clog.flush();
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) launch::throw_errno("cannot start the zygote", "check ulimit -u and memory");
  if (pid == 0) {
    mine.reset();
    serve(its.get(), parent, catcher);
  }
  zygote().socket = std::move(mine);
}

JobReport run_in_zygote(const RankJob& job) {
  const std::lock_guard lock(zygote().mutex);
  const int socket = zygote().socket.get();
  refuse(socket < 0, "fork_ranks: there is no zygote to fork ranks from");
  if (send_message(socket, job.packed()) && answers_within(socket, job.options.deadline + kPatience)) {
    if (auto answer = receive_message(socket)) return JobReport::unpacked(std::move(*answer));
  }
  zygote().socket.reset();  // ends it, where it is not dead already
  throw Error("testing", {.what = "fork_ranks: the zygote is gone or does not answer",
                          .got = "body \"" + job.name + "\""});
}

namespace {

void require(bool holds, const char* what, const std::string& expected, std::int64_t got) {
  if (holds) return;
  throw ConfigError("testing", {.what = std::string("fork_ranks: ") + what + " is out of range",
                                .expected = expected,
                                .got = std::to_string(got)});
}

void validate(int ranks, const ForkRanksOptions& options) {
  require(ranks >= 1, "the number of ranks", "at least 1", ranks);
  require(options.deadline.count() > 0, "deadline", "more than 0 ms", options.deadline.count());
  const auto& fault = options.fault;
  const bool is_rank = fault.rank >= 0 && fault.rank < ranks;
  require(fault.kind == FaultKind::kNone || is_rank, "fault.rank", "0.." + std::to_string(ranks - 1),
          fault.rank);
}

}  // namespace

std::vector<RankResult> fork_ranks(int ranks, const std::string& name, const std::string& argument,
                                   const ForkRanksOptions& options) {
  validate(ranks, options);
  find_rank_body(name);
  auto report = run_in_zygote({.ranks = ranks, .name = name, .argument = argument, .options = options});
  const ErrorParts parts{.what = report.what, .got = report.got};
  switch (report.failure) {
    case JobFailure::kNone:
      return std::move(report.ranks);
    case JobFailure::kTimeout:
      throw Timeout("testing", parts);
    case JobFailure::kOther:
      break;
  }
  throw Error("testing", parts);
}

}  // namespace lockstep::testing
