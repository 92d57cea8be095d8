// torch.distributed's way to become a group of ranks: init_process_group(), for programs that run their own
// loop.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/comm/init.h>
#include <lockstep/comm/reduce_op.h>

namespace lockstep {

/// The arguments of torch.distributed.init_process_group(), and what it has none for.
struct ProcessGroupOptions {
  std::string backend = "gloo";        ///< "gloo"
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
/// few
///    seconds at most. When the scope is left by an exception it waits for nobody, so that the others,
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
