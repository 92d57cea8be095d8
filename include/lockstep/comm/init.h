// How ranks become a Communicator.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/comm/reduce_op.h>
#include <lockstep/comm/store.h>

namespace lockstep {

/// Who this rank is, where the others are, and how they talk.
struct CommOptions {
  std::string backend = "gloo";                                  ///< "gloo"
  std::string main_address = "127.0.0.1";                        ///< host of rank 0
  int main_port = 0;                                             ///< TCP port on which rank 0 listens
  int rank = 0;                                                  ///< 0 to world_size - 1
  int world_size = 1;                                            ///< number of ranks, >= 1
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  ///< for joining and for each collective
  Reduction reduction = Reduction::kOrdered;                     ///< order of sums
  bool check_collectives =
      true;  ///< before each, ranks compare what they call; costs a round of small messages
  std::optional<int> listen_fd = {};  ///< rank 0 only: listens on main_port already; taken over
};

/// Meets the other ranks at main_address:main_port and connects them. Collective, blocking.
/// May be called again for another communicator, in the same order on every rank; rank 0 keeps listening
/// on main_port until its process ends, and takes over the `listen_fd` of the first call only.
/// A world_size of 1 needs no network. Honours GLOO_SOCKET_IFNAME (an interface, or several with commas).
/// @throws ConfigError for options out of range; CommError for a port that is taken, a rank that joined
///   twice, ranks that disagree on world_size; Timeout naming the ranks that did not join, or the address
///   of a rank 0 that cannot be reached
LOCKSTEP_API Communicator init_communicator(const CommOptions& options);

/// As above, but the ranks meet in `store`, which serves one communicator; main_address only chooses the
/// network.
LOCKSTEP_API Communicator init_communicator(const CommOptions& options, Store store);

}  // namespace lockstep
