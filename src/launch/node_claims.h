// Nodes that want a number which another node has: one that comes back before the loss of its connection was
// noticed, or two that were given the same number by mistake.
//
// Who has the number is asked whether it is there. Where it answers, the newcomer is refused. Else it is
// lost, and the newcomer takes its place: at once where their machine was started anew in between, soon where
// both are on one machine, and when it has been silent for too long where they are on two.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/node_messages.h"

namespace lockstep::launch {

/// See above. Without sockets and a clock of its own.
class NodeClaims {
 public:
  using Node = std::uint64_t;
  using Time = std::chrono::steady_clock::time_point;

  struct Claim {
    Node newcomer;
    Node holder;
    JoinRequest request;
    std::string address;
    std::optional<Time> ends_at = {};  ///< then the holder is lost; none: as soon as any silent node is
  };

  /// `theirs` is the holder's request.
  void add(Claim claim, const JoinRequest& theirs, Time now);
  /// Whether the node waits for an answer.
  bool contains(Node newcomer) const;
  /// The newcomer is gone.
  void forget(Node newcomer);
  /// Takes out those that want `holder`'s number.
  std::vector<Claim> take(Node holder);

  std::optional<Time> next_deadline() const;
  /// Who was asked and has not answered in time.
  std::vector<Node> silent_holders(Time now) const;
  /// Nobody could be heard until now.
  void excuse_silence(Time now);

 private:
  std::vector<Claim> claims_;
};

}  // namespace lockstep::launch
