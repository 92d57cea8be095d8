// A node of a job with several nodes: how its launcher finds the rendezvous, or hosts it, and runs round
// after round as the rendezvous says.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <lockstep/launch/launch_options.h>

#include "launch/coordinator.h"
#include "launch/node_messages.h"
#include "launch/posix.h"
#include "launch/rank_observer.h"
#include "launch/rank_process.h"
#include "launch/supervisor.h"
#include "rendezvous/addresses.h"
#include "rendezvous/client.h"
#include "rendezvous/store_server.h"

namespace lockstep::launch {

// How ranks find the key-value store of their job: LOCKSTEP_STORE=HOST:PORT, and its key in a file that they
// inherit, whose descriptor LOCKSTEP_STORE_TOKEN_FD names. The key is in no file, argument or variable that
// other users could read. LOCKSTEP_STORE_SCOPE keeps the keys of attempts apart.

/// The variables and the key by which ranks reach a store.
class StoreAccess {
 public:
  /// @throws Error when the key cannot be put into a file of its own
  StoreAccess(rendezvous::TcpEndpoint endpoint, const std::string& key);

  /// Adds them to the rank of `plan`, which must start while this lives.
  void add_to(RankPlan& plan, int round) const;

 private:
  rendezvous::TcpEndpoint endpoint_;
  UniqueFd key_file_;
};

/// One start of this node's ranks.
struct Attempt {
  int number = 0;    ///< from 0
  int restarts = 0;  ///< after failures, so far
  const StoreAccess* store = nullptr;
  RankObserver* observer = nullptr;  ///< an additional observer; may be null
  int first_role_rank = -1;          ///< of this node, among the ranks of its role; -1: all ranks are of one
  int role_world_size = 0;           ///< ranks of its role; 0: all
};

/// Starts the ranks as `options.launch` says, and blocks until they have ended.
using AttemptRunner = std::function<LaunchEnd(const ProgramOptions& options, const Attempt& attempt)>;

/// The secret that LOCKSTEP_JOB_TOKEN holds, if it is set.
std::optional<std::string> job_token();

/// Joins the rendezvous at `options.rendezvous`, or hosts it where this node has to, and runs rounds until
/// the job has ended. Blocks; `events` are handled also while no ranks run.
/// @returns the exit code of the job
/// @throws ConfigError when the others are of another job or differ in flags; Timeout when nobody hosts;
///   CommError when this node must, and cannot
int run_rounds(const ProgramOptions& options, const AttemptRunner& run, const LauncherEvents& events);

// The host of a rendezvous: a server to which the launchers of all nodes, its own among them, and the ranks
// connect.

/// The coordinator, fed by connections.
class CoordinatorService final : public rendezvous::FrameService {
 public:
  CoordinatorService(const RendezvousOptions& options, const JoinRequest& own, int max_restarts);

  /// Blocks until all nodes have left, for at most `patience`.
  void await_departure(std::chrono::milliseconds patience);

  void on_message(rendezvous::ServerConnection& from, std::string_view payload) override;
  void on_closed(const rendezvous::ServerConnection& connection) override;
  std::optional<Deadline> next_deadline() const override;
  void on_time() override;

 private:
  void note_departure();

  std::map<std::uint64_t, rendezvous::ServerConnection*> nodes_;
  Coordinator coordinator_;
  std::mutex mutex_;
  std::condition_variable departure_;
  bool is_empty_ = true;  // guarded by mutex_
};

/// Serves as long as it lives, on a thread of its own.
class RendezvousHost {
 public:
  /// `socket` listens at the endpoint of `options`.
  RendezvousHost(rendezvous::BoundSocket socket, const RendezvousOptions& options, const JoinRequest& own,
                 int max_restarts, const std::string& key);

  /// As CoordinatorService::await_departure().
  void await_departure(std::chrono::milliseconds patience) { coordinator_.await_departure(patience); }

 private:
  CoordinatorService coordinator_;
  rendezvous::StoreServer server_;
};

/// The connection of this node with the rendezvous.
struct RendezvousConnection {
  std::unique_ptr<RendezvousHost> host;  ///< null: another node hosts
  rendezvous::FrameLink link;
  rendezvous::TcpEndpoint endpoint;  ///< of the host as it is reached from here
};

/// Connects to the rendezvous. Node 0 of a static job hosts it; otherwise the node that can listen at the
/// endpoint, which must be an address of its machine, unless options.is_host is set: then the host listens on
/// all addresses of the machine. Other nodes try to connect until the host answers. Blocks until `deadline`
/// and handles `events`; a signal to stop ends the process.
/// @throws ConfigError when the endpoint belongs to another job, or another program has the port; Timeout
/// naming the endpoint when nobody answers; CommError when this node must host and cannot
RendezvousConnection join_rendezvous(const RendezvousOptions& options, const JoinRequest& request,
                                     int max_restarts, const std::string& key, Deadline deadline,
                                     const LauncherEvents& events);

/// What this node has to do next, after its ranks have ended or while it waits for a round.
struct NodeOrder {
  enum Kind {
    kRun,    ///< round
    kJoin,   ///< again
    kExit,   ///< with exit_code
    kOrphan  ///< the host is gone
  };
  Kind kind = kExit;
  Round round = {};
  int exit_code = 0;
};

/// The client of the rendezvous: joins rounds, receives orders of the host while ranks run, and reports
/// failures to it. Single-threaded.
class NodeLink final : public RankObserver {
 public:
  /// Borrows `events`, which wake it while it waits. With `is_quiet`, messages that concern all nodes are
  /// printed by another node.
  NodeLink(rendezvous::FrameLink link, const RendezvousOptions& options, const LauncherEvents& events,
           bool is_quiet = false);

  /// Asks to join the next round and blocks until it begins, the job ends, or a signal asks this process to
  /// stop, which is reported to the host.
  /// @throws ConfigError when the host refuses
  NodeOrder join(const JoinRequest& request);

  /// To be called after the ranks have ended: reports that to the host, unless it has sent an order already,
  /// and blocks until there is one.
  NodeOrder after(bool is_done);

  /// Tells the host that this node leaves, stopped by `signal`.
  void leave(int signal);

  void add_to(std::vector<pollfd>& watched) const override;
  void look() override;
  std::string last_stderr_lines(int) const override { return {}; }
  std::string take_news() override { return std::exchange(news_, {}); }
  bool recalls_ranks() const override { return !orders_.empty(); }
  void on_failure(const Failure& failure, Blame blame, int exit_code, const std::string& words) override;

 private:
  using Clock = std::chrono::steady_clock;

  void send(const NodeMessage& message);
  NodeOrder await_order();
  void take(const HostMessage& message);
  void announce(const HostMessage& message);
  void note(NodeOrder order);
  void print_news();
  void lose_host(const std::string& why);

  rendezvous::FrameLink link_;
  RendezvousOptions options_;
  const LauncherEvents& events_;
  bool is_quiet_;
  UniqueFd timer_;
  Clock::time_point heard_at_ = Clock::now();
  Clock::time_point looked_at_ = Clock::now();
  std::deque<NodeOrder> orders_;  ///< orders of the host that were not carried out yet
  bool is_over_ = false;          ///< the host will send nothing more
  std::string news_;              ///< messages for the user
  std::string own_last_lines_;    ///< the last lines of a rank of this node that has failed
  bool has_failed_ = false;
};

}  // namespace lockstep::launch
