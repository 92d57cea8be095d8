// The messages between the launcher of a node and the host of the rendezvous: JSON objects in frames.
#pragma once

#include <string>
#include <string_view>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>

#include "launch/rank_observer.h"

namespace lockstep::launch {

inline constexpr char kNodeLetter = 'J';  ///< of frames for the host of the rendezvous

/// A node that wants to take part in the next round.
struct JoinRequest {
  std::string run_id = {};
  int min_nodes = 1;
  int max_nodes = 1;
  int nprocs = 1;
  std::string role = {};     ///< of its ranks
  int node_rank = -1;        ///< -1: any
  std::string host = {};     ///< what the node calls itself
  std::string boot_id = {};  ///< of its kernel: different after each boot of the machine
  int pid = 0;               ///< of its launcher
  bool hosts = false;        ///< the rendezvous
  std::string address = {};  ///< where others reach it; empty: where it calls from
  int port = 0;              ///< free there, for rank 0
  int num_rounds = 0;        ///< that it has taken part in
  int num_restarts = 0;
};

/// One start of the ranks of all nodes.
struct Round {
  int number = 0;    ///< from 0
  int restarts = 0;  ///< after failures, so far
  int node_rank = 0;
  int num_nodes = 1;
  int first_rank = 0;  ///< of the node
  int world_size = 1;
  int first_role_rank = 0;  ///< of the node, among the ranks of its role
  int role_world_size = 1;
  std::string main_address;
  int main_port = 0;
};

/// The first failure on a node.
struct NodeFailure {
  std::string cause;  ///< in words, beginning with the rank
  Blame blame = Blame::kNone;
  int exit_code = 1;
};

/// From a node to the host. `kind` says which of the fields count.
struct NodeMessage {
  enum Kind : char {
    kJoin = 'j',
    kFailed = 'f',
    kDone = 'd',
    kLeave = 'l',
    kAlive = 'a',
    kHere = 'h'  ///< the answer to kAsk
  };
  Kind kind = kAlive;
  JoinRequest join = {};
  NodeFailure failure = {};
  int signal = 0;  ///< of kLeave: what it was stopped by
};

/// From the host to a node.
struct HostMessage {
  enum Kind : char {
    kRound = 'r',    ///< the node starts its ranks
    kStop = 's',     ///< the node stops its ranks and joins again; text says why
    kEnd = 'e',      ///< the job is over, with exit_code: text says why where it is not 0
    kRefused = 'x',  ///< the node cannot take part; text says why
    kAsk = 'q',      ///< the node is asked whether it is there
    kNews = 'n',     ///< text is printed for the user
    kAlive = 'a'
  };
  Kind kind = kAlive;
  Round round = {};
  std::string text = {};
  bool is_own = false;  ///< of kStop and kEnd: it is a rank of this node that has failed
  int exit_code = 0;
};

LOCKSTEP_API std::string to_text(const NodeMessage& message);
LOCKSTEP_API std::string to_text(const HostMessage& message);

/// @returns an error where `text` is no such message
LOCKSTEP_API Expected<NodeMessage> parse_node_message(std::string_view text);
LOCKSTEP_API Expected<HostMessage> parse_host_message(std::string_view text);

}  // namespace lockstep::launch
