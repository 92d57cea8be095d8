#include "launch/node_rounds.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <csignal>

#include <lockstep/base/env.h>
#include <lockstep/base/log.h>

#include "base/sockets.h"
#include "base/system.h"
#include "launch/orphans.h"

namespace lockstep::launch {

StoreAccess::StoreAccess(rendezvous::TcpEndpoint endpoint, const std::string& key)
    : endpoint_(std::move(endpoint)),
      key_file_(::memfd_create("lockstep-token", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (!key_file_ || ::write(key_file_.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size()))
    throw_errno("cannot hand the key of the store to the ranks");
  ::fcntl(key_file_.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
}

void StoreAccess::add_to(RankPlan& plan, int round) const {
  plan.variables["LOCKSTEP_STORE"] = endpoint_.text();
  plan.variables["LOCKSTEP_STORE_SCOPE"] = "round-" + std::to_string(round);
  plan.variables["LOCKSTEP_STORE_TOKEN_FD"] = std::to_string(key_file_.get());
  plan.inherited_fds.push_back(key_file_.get());
}

namespace {

using std::chrono::steady_clock;

std::string key_of(const ProgramOptions& options) {
  const auto& token = options.rendezvous->token;
  return token.empty() ? job_token().value_or(options.run_id) : token;
}

void check_local_address(const std::string& address) {
  if (address.empty()) return;
  const auto known = resolve(address, 0);
  if (known) return;
  throw ConfigError("launch", {.what = "--local-addr",
                               .expected = "a name or address at which other nodes reach this one",
                               .got = "\"" + address + "\": " + known.error()});
}

JoinRequest request_of(const ProgramOptions& options) {
  const auto& meeting = *options.rendezvous;
  check_local_address(meeting.local_address);
  return {.run_id = options.run_id,
          .min_nodes = meeting.min_nodes,
          .max_nodes = meeting.max_nodes,
          .nprocs = options.launch.nprocs,
          .role = options.output.role,
          .node_rank = meeting.is_static ? options.launch.node_rank : -1,
          .host = detail::host_name(),
          .boot_id = detail::boot_id(),
          .pid = ::getpid(),
          .address = meeting.local_address};
}

// The options of this node in the round. The first failure is printed by the nodes together.
ProgramOptions placed(const ProgramOptions& options, const Round& round) {
  auto here = options;
  here.launch.num_nodes = round.num_nodes;
  here.launch.node_rank = round.node_rank;
  here.first_rank = round.first_rank;
  here.world_size = round.world_size;
  here.launch.main_address = round.main_address;
  here.launch.main_port = round.main_port;
  here.launch.print_failure = false;
  return here;
}

class Node {
 public:
  Node(const ProgramOptions& options, const AttemptRunner& run, const LauncherEvents& events)
      : options_(options), run_(run), events_(events), key_(key_of(options)), request_(request_of(options)) {}

  int run() {
    meet(steady_clock::now() + options_.rendezvous->join_timeout);
    for (auto order = join();;) {
      if (order.kind == NodeOrder::kExit) return leave(order.exit_code);
      if (order.kind == NodeOrder::kOrphan && !can_meet_again()) return order.exit_code;
      order = order.kind == NodeOrder::kRun ? run_round(order.round) : join();
    }
  }

 private:
  void meet(Deadline deadline) {
    link_.reset();
    connection_.reset();  // a server of this node that is no longer needed must release the endpoint
    connection_ =
        join_rendezvous(*options_.rendezvous, request_, options_.max_restarts, key_, deadline, events_);
    request_.hosts = connection_->host != nullptr;
    store_.emplace(connection_->endpoint, key_);
    // Where one terminal shows all nodes, one of them prints what concerns all.
    const bool is_quiet = options_.tied_to_stdin && !request_.hosts;
    link_.emplace(std::move(connection_->link), *options_.rendezvous, events_, is_quiet);
  }

  // Whether another host of the rendezvous may be found: a launcher on the same machine, or the previous one
  // again.
  bool can_meet_again() {
    if (options_.rendezvous->is_static) return false;
    log_warning("looking for another host of the rendezvous");
    meet(steady_clock::now() + options_.rendezvous->last_call_timeout);
    return true;
  }

  // The port is passed to rank 0 if this becomes node 0.
  NodeOrder join() {
    request_.port = reserved_port();
    return link_->join(request_);
  }

  NodeOrder run_round(const Round& round) {
    request_.num_rounds = round.number + 1;
    request_.num_restarts = round.restarts;
    const auto end = run_(placed(options_, round), {.number = round.number,
                                                    .restarts = round.restarts,
                                                    .store = &*store_,
                                                    .observer = &*link_,
                                                    .first_role_rank = round.first_role_rank,
                                                    .role_world_size = round.role_world_size});
    if (end.was_asked_to_stop) {
      link_->leave(end.exit_code > kExitSignalled ? end.exit_code - kExitSignalled : SIGTERM);
      return {.kind = NodeOrder::kExit, .exit_code = end.exit_code};
    }
    const auto order = link_->after(end.exit_code == 0);
    if (order.kind != NodeOrder::kExit)
      kill_descendants();  // processes that ranks have left would hold ports and memory
    return order;
  }

  // The host must have told the other nodes that the job has ended.
  int leave(int exit_code) {
    link_.reset();
    if (connection_->host) connection_->host->await_departure(options_.rendezvous->close_timeout);
    return exit_code;
  }

  const ProgramOptions& options_;
  const AttemptRunner& run_;
  const LauncherEvents& events_;
  std::string key_;
  JoinRequest request_;
  std::optional<StoreAccess> store_;
  std::optional<RendezvousConnection> connection_;
  std::optional<NodeLink> link_;
};

}  // namespace

std::optional<std::string> job_token() {
  auto token = env::get("LOCKSTEP_JOB_TOKEN");
  if (token && (token->empty() || token->size() > kMostTokenBytes))
    throw ConfigError("launch", {.what = "LOCKSTEP_JOB_TOKEN",
                                 .expected = "a secret of 1 to " + std::to_string(kMostTokenBytes) + " bytes",
                                 .got = token->empty() ? "an empty text" : std::to_string(token->size())});
  return token;
}

int run_rounds(const ProgramOptions& options, const AttemptRunner& run, const LauncherEvents& events) {
  return Node(options, run, events).run();
}

}  // namespace lockstep::launch
