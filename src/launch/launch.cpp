#include <lockstep/launch/launch.h>

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/launch/join.h>
#include <lockstep/launch/launch_options.h>

#include "base/diagnoses.h"
#include "base/host_name.h"
#include "base/sockets.h"
#include "base/system.h"
#include "launch/orphans.h"
#include "launch/posix.h"
#include "launch/rank_process.h"
#include "launch/supervisor.h"

namespace lockstep::launch {
namespace {

// A listening TCP socket and the port it got. Closed in programs that a rank executes.
struct ListenSocket {
  UniqueFd fd;
  int port = 0;
};

AddressList addresses_of(const std::string& host, int port) {
  auto found = resolve(host, port, AI_PASSIVE);
  if (found) return std::move(*found);
  throw Error("launch", {.what = "cannot resolve main_address \"" + host + "\"",
                         .got = found.error(),
                         .hint = "check the name and /etc/hosts"});
}

UniqueFd try_listen(const addrinfo& address) {
  UniqueFd fd(::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol));
  if (!fd) return fd;
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool listening =
      ::bind(fd.get(), address.ai_addr, address.ai_addrlen) == 0 && ::listen(fd.get(), SOMAXCONN) == 0;
  return listening ? std::move(fd) : UniqueFd();
}

// Who has chosen `port`, and how to choose another one.
std::string hint_for_port(int port) {
  if (env::get("MASTER_PORT") == std::to_string(port))
    return "the variable MASTER_PORT names it: set another one, or unset it for a free one";
  return "choose another main_port (of lockstep run: --master-port), or 0 for a free one";
}

// Listens on `port` (0: a free one) of the first of `addresses` that can be listened on.
// @throws Error naming address, port and reason
ListenSocket listen_on(std::span<const std::string> addresses, int port) {
  for (const auto& address : addresses) {
    const auto candidates = addresses_of(address, port);
    for (const addrinfo* candidate = candidates.get(); candidate != nullptr; candidate = candidate->ai_next) {
      if (auto fd = try_listen(*candidate)) {
        const int got = port_of(fd.get());
        return {std::move(fd), got};
      }
    }
  }
  throw_errno("cannot listen on " + addresses.back() + " port " + std::to_string(port),
              errno == EADDRNOTAVAIL ? "it must be an address of this machine, of an interface that is up: "
                                       "even lo may be down"
                                     : hint_for_port(port));
}

}  // namespace
}  // namespace lockstep::launch

namespace lockstep {
namespace {

using launch::ListenSocket;
using launch::RankPlan;
using launch::StatusTable;

void require(bool holds, const std::string& what, const std::string& expected, const std::string& got,
             const std::string& hint = {}) {
  if (holds) return;
  throw ConfigError("launch", {.what = what, .expected = expected, .got = got, .hint = hint});
}

ListenSocket listen_for_ranks(const LaunchOptions& options) {
  if (options.node_rank != 0) return {.fd = {}, .port = options.main_port};
  if (options.num_nodes == 1)
    return launch::listen_on(std::span(&options.main_address, 1), options.main_port);
  const std::string everywhere[] = {"::", "0.0.0.0"};
  return launch::listen_on(everywhere, options.main_port);
}

void flush_output() {
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
}

void become(const RankPlan& plan) {
  for (const auto& name : plan.unset) env::unset(name);
  for (const auto& [name, value] : plan.variables) env::set(name, value);
}

void require_descriptors(int ranks) {
  constexpr std::int64_t kAlways = 8, kOfRank = 2;
  require_open_files(kAlways + kOfRank * ranks, "starting " + std::to_string(ranks) + " ranks");
}

// Everything that is created before the first rank, in the order in which it can fail.
struct Launch {
  explicit Launch(const LaunchOptions& chosen)
      : options(chosen), files(chosen), socket(listen_for_ranks(chosen)), statuses(chosen.nprocs) {
    detail::diagnoses();  // refuses a wrong word before there are ranks
    statuses.expect_all_written();
  }

  launch::LaunchContext context(std::string_view launched) const {
    return {.launched = launched, .port = socket.port, .listen_fd = socket.fd.get()};
  }

  launch::LaunchEnd run(std::span<const RankPlan> plans,
                        const std::function<void(const RankPlan&)>& rank_main) {
    std::optional<launch::OrphanReaper> orphans;  // of the first process of a container
    if (::getpid() == 1) orphans.emplace();
    auto ranks = launch::start_ranks(plans, signals, rank_main);
    socket.fd.reset();
    std::vector<launch::RankObserver*> observers;
    if (orphans) {
      orphans->leave_alone(ranks);
      observers.push_back(&*orphans);
    }
    launch::Supervisor supervisor(options, files, statuses, signals, std::move(ranks), observers);
    const int exit_code = supervisor.run();
    return {.exit_code = exit_code, .failure = supervisor.failure()};
  }

  const LaunchOptions& options;
  launch::RunFiles files;
  ListenSocket socket;
  StatusTable statuses;
  launch::SignalScope signals = {};
};

}  // namespace

LaunchOptions launch_options(int nprocs, int num_nodes, std::filesystem::path run_dir) {
  LaunchOptions options{.nprocs = nprocs, .num_nodes = num_nodes, .run_dir = std::move(run_dir)};
  options.node_rank = static_cast<int>(env::get_int("NODE_RANK", env::get_int("GROUP_RANK", 0)));
  options.main_address = env::get("MASTER_ADDR").value_or(options.main_address);
  options.main_port = static_cast<int>(env::get_int("MASTER_PORT", 0));
  require(num_nodes == 1 || (env::get("MASTER_ADDR") && env::get("MASTER_PORT")),
          "num_nodes " + std::to_string(num_nodes),
          "MASTER_ADDR and MASTER_PORT of the first node, and each node's own NODE_RANK, in the environment",
          "not all of them", "or start the program with torchrun --no-python on each node");
  return options;
}

bool can_fork() {
  std::error_code failure;
  const std::filesystem::directory_iterator threads("/proc/self/task", failure);
  return failure || std::distance(begin(threads), end(threads)) == 1;
}

launch::LaunchEnd launch::run_forked_ranks(const LaunchOptions& given,
                                           const std::function<int()>& rank_main) {
  occupy_standard_descriptors();
  const auto options = launch::settled(given);
  launch::refuse_in_rank();
  require_descriptors(options.nprocs);
  require(can_fork(), "ranks cannot be forked here", "a process with one thread", "one with more",
          "fork before the first tensor, or use launch_reexec()");
  Launch launch(options);
  flush_output();  // or every rank would print the buffers' contents again
  const auto plans = plan_ranks(options, launch.context("fork"));
  return launch.run(plans, [&](const RankPlan& plan) {
    become(plan);
    launch.statuses.close_fd();
    use_rank_status(launch.statuses[plan.local_rank]);
    if (plan.inherited_fds.empty()) launch.socket.fd.reset();
    const int code = launch::guard_rank(rank_main);
    detail::end_of_process();
    flush_output();
    ::_exit(code);
  });
}

int launch_forked(const LaunchOptions& options, const std::function<int()>& rank_main) {
  return launch::run_forked_ranks(options, rank_main).exit_code;
}

int launch_reexec(const LaunchOptions& given, int argc, char** argv) {
  occupy_standard_descriptors();
  const auto options = launch::settled(given);
  launch::refuse_in_rank();
  require_descriptors(options.nprocs);
  Launch launch(options);
  auto context = launch.context("reexec");
  context.status_fd = launch.statuses.fd();
  const auto plans = plan_ranks(options, context);
  const auto images =
      launch::make_images(plans, "/proc/self/exe", std::vector<std::string>(argv, argv + argc));
  const auto end = launch.run(plans, [&](const RankPlan& plan) {
    images[plan.local_rank].execute();
    use_rank_status(launch.statuses[plan.local_rank]);
    set_outcome(RankOutcome::kFailed, "[launch] cannot execute this program again");
    ::_exit(launch::kExitCannotExecute);
  });
  return end.exit_code;
}

namespace {

void require_between(const std::string& field, int value, int min, int max) {
  require(value >= min && value <= max, field, std::to_string(min) + ".." + std::to_string(max),
          std::to_string(value));
}

}  // namespace

LaunchOptions launch::settled(LaunchOptions options) {
  require_between("num_nodes", options.num_nodes, 1, std::numeric_limits<int>::max());
  require_between("nprocs", options.nprocs, 1, std::numeric_limits<int>::max() / options.num_nodes);
  require_between("node_rank", options.node_rank, 0, options.num_nodes - 1);
  require_between("main_port", options.main_port, options.num_nodes > 1 ? 1 : 0, 65'535);
  options.main_address = without_brackets(options.main_address);
  const auto& address = options.main_address;
  require(address.empty() || may_be_host(address), "main_address", kHostForm, '"' + address + '"');
  if (options.main_address == LaunchOptions().main_address) options.main_address = loopback_address();
  return options;
}

void launch::refuse_in_rank() {
  const std::string variable = env::get("LOCAL_RANK") ? "LOCAL_RANK" : "RANK";
  require(!started_by_launcher(), "ranks cannot be started here", "a process that is no rank",
          variable + "=" + env::get(variable).value_or(""), "a launcher has started this process already");
}

namespace {

constexpr const char* kAcceptedStreams =
    "0 (none), 1 (stdout), 2 (stderr) or 3 (both), or LOCAL_RANK:NUMBER,...";

Expected<int> number_of(std::string_view text, int max) {
  const auto number = OptionType<int>::parse(text);
  if (!number || *number < 0 || *number > max) return Unexpected{kAcceptedStreams};
  return *number;
}

}  // namespace

Expected<StreamChoice> StreamChoice::parse(std::string_view text) {
  constexpr int kBoth = 3, kMaxRank = 1'000'000;
  StreamChoice choice;
  if (text.find(':') == std::string_view::npos) {
    const auto all = number_of(text, kBoth);
    if (!all) return Unexpected{kAcceptedStreams};
    choice.all_ = *all;
    return choice;
  }
  for (bool is_over = false; !is_over;) {
    const auto item = text.substr(0, text.find(','));
    const auto colon = item.find(':');
    if (colon == std::string_view::npos) return Unexpected{kAcceptedStreams};
    const auto rank = number_of(item.substr(0, colon), kMaxRank),
               streams = number_of(item.substr(colon + 1), kBoth);
    if (!rank || !streams) return Unexpected{kAcceptedStreams};
    if (!choice.by_rank_.emplace(*rank, *streams).second)
      return Unexpected{"each local rank once, in LOCAL_RANK:NUMBER,..."};
    is_over = item.size() == text.size();
    text.remove_prefix(is_over ? item.size() : item.size() + 1);
  }
  return choice;
}

int StreamChoice::of(int local_rank) const {
  const auto found = by_rank_.find(local_rank);
  return found == by_rank_.end() ? all_ : found->second;
}

}  // namespace lockstep
