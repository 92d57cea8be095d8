// The state machine of the rendezvous: which nodes take part in a job, and what happens when one of them
// fails, leaves or joins. It has no sockets and no clock of its own.
//
// A round begins when all nodes that may come have joined, or, with at least min_nodes, when nobody else is
// expected: at first and after a loss, last_call_timeout (at first first_call_timeout, if given) after
// min_nodes were reached; else as soon as all nodes that are connected have joined. It ends when a rank fails
// (one restart of the job), when a node is lost, leaves or comes (which costs none), or when all nodes are
// done. Nodes keep their order; new ones get the numbers after them. The time to join runs while no node is
// busy stopping its ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/launch/launch_options.h>

#include "launch/node_messages.h"

namespace lockstep::launch {

// Nodes that claim a number which another node has: a node that reconnects before the loss of its connection
// was noticed, or two nodes that were given the same number by mistake.
//
// The node that has the number is asked whether it is there. If it answers, the newcomer is refused.
// Otherwise it counts as lost, and the newcomer takes its place: at once where their machine was rebooted in
// between, soon where both are on one machine, and after a longer silence where they are on two machines.

/// The claims to numbers of other nodes. It has no sockets and no clock of its own.
class NodeClaims {
 public:
  using Node = std::uint64_t;
  using Time = std::chrono::steady_clock::time_point;

  struct Claim {
    Node newcomer;
    Node holder;
    JoinRequest request;
    std::string address;
    std::optional<Time> ends_at = {};  ///< when the holder counts as lost; none: as any silent node
  };

  /// Adds a claim. `theirs` is the holder's request.
  void add(Claim claim, const JoinRequest& theirs, Time now);
  /// Whether the node waits for an answer.
  bool contains(Node newcomer) const;
  /// The newcomer is gone.
  void forget(Node newcomer);
  /// Removes and returns the claims to the number of `holder`.
  std::vector<Claim> take(Node holder);

  std::optional<Time> next_deadline() const;
  /// The nodes that were asked and have not answered in time.
  std::vector<Node> silent_holders(Time now) const;
  /// To be called after this process was stopped: no node could be heard until now.
  void excuse_silence(Time now);

 private:
  std::vector<Claim> claims_;
};

/// The state machine described above. Nodes are identified by numbers that the caller gives them, one per
/// connection.
class LOCKSTEP_API Coordinator {
 public:
  using Node = std::uint64_t;
  using Time = std::chrono::steady_clock::time_point;
  using Tell = std::function<void(Node, const HostMessage&)>;

  /// `host` is the request of the node that hosts: others must agree with it. `tell` sends a message to a
  /// node that has joined; it may not call back.
  Coordinator(RendezvousOptions options, JoinRequest host, int max_restarts, Tell tell);

  /// Handles a message of a node. `address` is the address it connects from; empty: the host's own machine.
  void on_message(Node node, const NodeMessage& message, const std::string& address, Time now);
  /// Handles the end of the connection with `node`.
  void on_closed(Node node, Time now);

  /// When on_time() is due, if at all.
  std::optional<Time> next_deadline() const;
  void on_time(Time now);

  /// To be called after this process was stopped: no node could be heard until now.
  void excuse_silence(Time now);
  /// The nodes that have been silent for too long, or have not answered in time; never the one that hosts,
  /// which is this process.
  std::vector<Node> silent_nodes(Time now) const;

  /// Whether any node has joined and not left.
  bool has_members() const { return !members_.empty(); }

 private:
  enum class State { kJoined, kRunning, kFailed, kDone, kStopping };
  struct Member {
    JoinRequest request;
    std::string address;
    State state = State::kJoined;
    Time heard_at{};
    std::uint64_t arrival = 0;
    std::optional<int> node_rank = {};  ///< in the current round, or the last
  };
  struct Suspect {
    Node node;
    NodeFailure failure;
    std::string host;
  };

  bool is_running() const { return is_running_; }
  std::string refusal_of(const JoinRequest& request) const;
  std::optional<Node> holder_of_number(Node node, const JoinRequest& request) const;
  void on_join(Node node, const JoinRequest& request, const std::string& address, Time now);
  void admit(Node node, const JoinRequest& request, const std::string& address, Time now);
  void claim(const NodeClaims::Claim& claim, Time now);
  void refuse_claims(Node holder);
  void settle_claims(Node holder, Time now);
  void on_failed(Node node, const NodeFailure& failure, Time now);
  void on_leave(Node node, int signal, Time now);
  void on_lost(Node node, Time now);
  void decide(Time now);
  void restart_after(const std::string& why, std::optional<Node> root_cause, Time now);
  void end_if_done();
  void end(int exit_code, const std::string& text, std::optional<Node> root_cause = {});
  void begin_gathering(Time now);
  void stopped(const Member& member, Time now);
  std::optional<Time> joins_by() const;
  std::optional<Time> forms_at() const;
  void form_if_due(Time now);
  void form();
  std::vector<Node> in_order() const;
  std::size_t count(State state) const;
  int num_ranks(const std::vector<Node>& nodes) const;
  std::string name_of(const Member& member) const;
  std::vector<int> absent_numbers() const;
  std::string absent_text() const;
  std::string waiting_text() const;
  void tell_news(Time now);

  RendezvousOptions options_;
  JoinRequest host_;
  int max_restarts_;
  Tell tell_;
  std::map<Node, Member> members_;
  NodeClaims claims_;
  std::vector<std::string> lost_;        ///< since the last round
  std::optional<Time> gathering_since_;  ///< while no round runs; since the last node stopped
  std::optional<Time> news_at_;          ///< when people are told what is waited for
  std::optional<Time> enough_since_;     ///< min_nodes have joined
  std::optional<Suspect> suspect_;
  std::optional<Time> decide_at_;
  std::optional<HostMessage> end_;
  std::uint64_t num_arrivals_ = 0;
  int num_rounds_ = 0;
  int num_restarts_ = 0;
  bool is_running_ = false;
};

}  // namespace lockstep::launch
