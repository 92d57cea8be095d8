// A node's launcher in the rendezvous: it joins rounds, watches for messages of the host while ranks run, and
// tells it what becomes of them.
#pragma once

#include <chrono>
#include <deque>
#include <string>
#include <utility>

#include <lockstep/launch/launch_options.h>

#include "launch/node_messages.h"
#include "launch/posix.h"
#include "launch/rank_observer.h"
#include "rendezvous/frame_link.h"

namespace lockstep::launch {

/// What is to be done next, after ranks have run or while a round is awaited.
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

/// One connection with the host. Single-threaded.
class NodeLink final : public RankObserver {
 public:
  /// Borrows `events`, by which this wakes while it waits. With `is_quiet` what concerns all nodes is left
  /// for another one to say.
  NodeLink(rendezvous::FrameLink link, const RendezvousOptions& options, const LauncherEvents& events,
           bool is_quiet = false);

  /// Asks for a place in the next round and blocks until it begins, the job ends, or a signal asks this
  /// process to stop, which the host is told.
  /// @throws ConfigError when the host refuses
  NodeOrder join(const JoinRequest& request);

  /// After the ranks have ended: tells the host, unless it has spoken already, and blocks until it has.
  NodeOrder after(bool is_done);

  /// This node goes, stopped by `signal`.
  void leave(int signal);

  void add_to(std::vector<pollfd>& watched) const override;
  void look() override;
  std::string last_words(int) const override { return {}; }
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
  std::deque<NodeOrder> orders_;  ///< of the host, that were not carried out
  bool is_over_ = false;          ///< the host says no more
  std::string news_;              ///< for people
  std::string own_words_;         ///< last ones of a rank of this node that has failed
  bool has_failed_ = false;
};

}  // namespace lockstep::launch
