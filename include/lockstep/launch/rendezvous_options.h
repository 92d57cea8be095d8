// How the launchers of several nodes find each other and agree who takes part.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>

namespace lockstep {

/// The longest token, in bytes.
inline constexpr std::size_t kMostTokenBytes = 4096;

/// One launcher hosts the rendezvous at host:port; all of them join it, one per node. Sources: torchrun's
/// --nnodes, --rdzv-endpoint and --rdzv-conf, whose names and defaults these are.
struct RendezvousOptions {
  int min_nodes = 1;      ///< with fewer, the job does not go on
  int max_nodes = 1;      ///< more wait until one leaves
  bool is_static = true;  ///< node_rank of LaunchOptions holds, and node 0 hosts; else who can listen there
  std::string host = {};  ///< name or address of the node that hosts
  int port = 29'400;      ///< TCP port there
  std::string local_address = {};  ///< where other nodes reach this one; empty: the one that it calls from
  std::string token = {};          ///< secret of the job; empty: its run_id, which is none

  std::chrono::milliseconds join_timeout = std::chrono::seconds(600);  ///< until min_nodes are there
  /// From then on until those that may come as well, or that were lost, are waited for no longer.
  std::chrono::milliseconds last_call_timeout = std::chrono::seconds(30);
  std::optional<std::chrono::milliseconds> first_call_timeout =
      {};  ///< the same before the first round, if another
  std::chrono::milliseconds close_timeout = std::chrono::seconds(30);  ///< for the others to hear of the end
  std::chrono::milliseconds read_timeout = std::chrono::seconds(60);   ///< for an answer of the host
  std::chrono::milliseconds keep_alive_interval = std::chrono::seconds(5);  ///< between signs of life
  int keep_alive_max_attempt = 3;    ///< as many missing ones, and a node is lost
  std::optional<bool> is_host = {};  ///< whether this node hosts; without: whoever can listen there
};

/// Host and port of HOST[:PORT]; an IPv6 address before a port is in brackets.
/// @returns what is accepted, where `text` is none
LOCKSTEP_API Expected<std::pair<std::string, int>> parse_rendezvous_endpoint(const std::string& text,
                                                                             int default_port);

}  // namespace lockstep
