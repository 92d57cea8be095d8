// How ranks become a Communicator: init_communicator(), and torch.distributed's init_process_group() for
// programs that run their own loop.
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
  std::string backend = "auto";            ///< "auto", "sockets", "gloo" or "nccl", as below
  std::string main_address = "127.0.0.1";  ///< host of rank 0
  int main_port = 0;                       ///< TCP port on which rank 0 listens
  int rank = 0;                            ///< 0 to world_size - 1
  int world_size = 1;                      ///< number of ranks, >= 1
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
/// `backend` is what carries the bytes that do not pass through memory of one machine: lockstep's own
/// sockets, or c10d's Gloo. "auto" takes sockets, and Gloo with Peers::kPyTorch, which knows nothing else.
/// "nccl", which has to be asked for, is the sockets with NCCL beside them, for tensors of CUDA devices. A
/// world_size of 1 needs no network. Honours GLOO_SOCKET_IFNAME (an interface; with Gloo also several with
/// commas) whatever the backend, the socket that our launcher opened on main_port for rank 0, and
/// TORCHELASTIC_USE_AGENT_STORE.
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

/// The arguments of torch.distributed.init_process_group(), and what it has none for.
struct ProcessGroupOptions {
  std::string backend = "auto";        ///< "auto", "sockets", "gloo" or "nccl", as in CommOptions
  std::optional<int> rank = {};        ///< 0 to world_size - 1; else from init_method or RANK
  std::optional<int> world_size = {};  ///< number of ranks, >= 1; else from init_method or WORLD_SIZE
  /// Where the ranks meet: `env://` (MASTER_ADDR and MASTER_PORT), `tcp://HOST:PORT` of rank 0, or
  /// `file:///PATH` that all ranks see and that is not there yet. Each may end with
  /// `?rank=R&world_size=N`. RANK and WORLD_SIZE are read with `env://` only.
  std::string init_method = "env://";
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  ///< for joining and for each collective
  Reduction reduction = Reduction::kOrdered;                     ///< order of sums
  Peers peers = Peers::kLockstep;                                ///< kPyTorch: others may be Python programs
};

/// A group that this process has joined: a Communicator that leaves when it goes out of scope.
///
/// 1. Make it with init_process_group(), which returns when all ranks have joined.
/// 2. Call collectives on it: `group.all_reduce(gradient)`. Copies as a Communicator share the group.
/// 3. At the end of the scope it close()s, as destroy_process_group() does: it waits for the other ranks, a
///    few seconds at most. When the scope is left by an exception it waits for nobody, so that the others,
///    who may be waiting for this rank in a collective, learn at once that it is gone.
///
/// Several may live at a time. There is no default group that free functions would use.
class LOCKSTEP_API ProcessGroup : public Communicator {
 public:
  explicit ProcessGroup(const Communicator& communicator);
  ProcessGroup(ProcessGroup&& other) noexcept;
  ProcessGroup& operator=(ProcessGroup&& other) noexcept;
  /// Never throws. Copies of it that live on as a Communicator can do no more collectives.
  ~ProcessGroup();

 private:
  void leave() noexcept;

  int exceptions_before_;  // that were under way when the scope began
};

/// Joins the group that the options describe. Collective; blocks until all ranks have joined. Rank 0 listens
/// on MASTER_PORT until its process ends. Later groups at one address must be joined in the same order by all
/// ranks. In ranks that lockstep's own launcher started it calls join_launcher() (launch/join.h), so that the
/// launcher can tell who failed first. Source: torch.distributed.init_process_group().
/// @throws ConfigError naming the option or environment variable that is missing, malformed or out of range
/// @throws CommError, CollectiveMismatch, Timeout as init_communicator(): two processes with one rank, ranks
///   with other world sizes, backends or reductions, and a rank out of range are named on every rank at once
LOCKSTEP_API ProcessGroup init_process_group(const ProcessGroupOptions& options = {});

}  // namespace lockstep
