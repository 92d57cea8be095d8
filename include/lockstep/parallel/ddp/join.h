// Join: training with DdpEngine where ranks have different numbers of batches.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/parallel/ddp/ddp_engine.h>

namespace lockstep {

/// What happens when ranks run out of batches at different times.
struct JoinOptions {
  bool divide_by_initial_world_size = true;  ///< false: averages are over the ranks that still have batches
  bool enable = true;                        ///< false: next() just returns what it is given
  bool throw_on_early_termination = false;   ///< true: next() throws on all ranks as soon as one runs out
  /// Called on a rank without batches when the others have finished a step, with the averaged gradients
  /// in place: step the optimizer and clear them, so that its state stays equal to the others'. Without it
  /// only parameters and buffers are made equal, at the end, and momenta are not (as in PyTorch).
  std::function<void()> on_shadowed_step = {};
};

/// torch.distributed.algorithms.Join for loops of one's own:
///
///     ls::Join join(engine);
///     for (auto batch = loader.begin(); join.next(batch != loader.end()); ++batch) {
///       engine.backward(loss_of(*batch));
///       optimizer.step();
///       optimizer.zero_grad();
///       engine.after_step();
///     }
///
/// Every rank runs its loop until next() returns false. Who is out of batches takes part in the others'
/// averages with zeros, inside of next(), until all are; then all get the parameters (and buffers, if
/// broadcast_buffers) of a rank that ended last. Buffers follow the first rank that has batches. One
/// small all_gather per backward and per step tells who still has batches.
///
/// Collectives other than those of the engines (metrics, synchronised batch norm) are not shadowed: use
/// throw_on_early_termination there. Gradients of an accumulation window that a rank could not finish are
/// lost: they are cleared when it runs out of batches. Not for skip_all_reduce_unused_params; with
/// static_graph every rank needs one averaged backward at least, ever.
class LOCKSTEP_API Join {
 public:
  /// The engine must outlive the object. Not Collective.
  /// @throws ConfigError when `engine` takes part in a Join already
  explicit Join(DdpEngine& engine, JoinOptions options = {});
  /// For several engines that are driven by the same loop and share one communicator.
  explicit Join(std::vector<DdpEngine*> engines, JoinOptions options = {});
  /// Does not communicate.
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  /// Before each batch: whether this rank goes on. With `has_batch` it returns true at once (and
  /// communicates only under throw_on_early_termination). Without, it shadows the other ranks until they
  /// are out of batches, too, and returns false. Collective, blocking.
  /// @throws DataError on every rank, under throw_on_early_termination, when a rank has run out
  /// @throws CollectiveMismatch when ranks do not drive their engines alike
  /// @throws ConfigError on every rank when one has run out before it has learnt a static graph
  bool next(bool has_batch);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
