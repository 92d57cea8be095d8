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

/// Which library the other ranks use.
enum class Peers {
  kLockstep,  ///< this one: a roll call before anything is connected, sums in the order of `reduction`
  kPyTorch  ///< torch.distributed, possibly from Python: c10d's keys and Gloo's own algorithms, nothing else
};

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
  Peers peers = Peers::kLockstep;     ///< what the other ranks run
};

/// Meets the other ranks at main_address:main_port and connects them. Collective, blocking.
/// May be called again for another communicator, in the same order on every rank; rank 0 keeps listening
/// on main_port until its process ends, and takes over the `listen_fd` of the first call only.
/// A world_size of 1 needs no network. Honours GLOO_SOCKET_IFNAME (an interface, or several with commas),
/// the socket that our launcher opened on main_port for rank 0, and TORCHELASTIC_USE_AGENT_STORE.
///
/// With Peers::kPyTorch the others may be Python programs that called torch.distributed.init_process_group()
/// with Gloo for CPU tensors. There is no roll call then, `reduction` is kFast, all_reduce, broadcast,
/// all_gather, reduce_scatter and barrier match their namesakes there, and bytes do not (Python pickles its
/// objects).
/// @throws ConfigError for options out of range; CommError for a port that another program has taken, a
///   main_address that is not one of rank 0's machine, a rank that joined twice; CollectiveMismatch for
///   ranks that disagree on world_size, backend or reduction; all ranks that are there learn of these at
///   once. Timeout naming the ranks that did not join, or the address of a rank 0 that cannot be reached
LOCKSTEP_API Communicator init_communicator(const CommOptions& options);

/// As above, but the ranks meet in `store`, which serves one communicator; main_address only chooses the
/// network.
LOCKSTEP_API Communicator init_communicator(const CommOptions& options, Store store);

}  // namespace lockstep
