// Activation checkpointing: what a part of a model computes in forward is computed again in backward, instead
// of being kept in memory until then.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <lockstep/base/export.h>

namespace lockstep {

/// Names are those of torch.utils.checkpoint.checkpoint.
struct CheckpointOptions {
  /// Dropout in the second run drops what it dropped in the first. Only LibTorch's default generators are put
  /// back for it, as in torch: one of the program's own (bernoulli_(p, generator)) goes on in the second run,
  /// which then draws, and computes gradients from, other numbers, unnoticed. The function may set its state
  /// itself: both runs begin there.
  bool preserve_rng_state = true;
};

namespace detail {

/// One run of a part of a model, for which nothing was kept.
class LOCKSTEP_API CheckpointedSegment : public std::enable_shared_from_this<CheckpointedSegment> {
 public:
  /// Remembers the generator's and autocast's state of now. `run_again` runs the part anew; it owns what it
  /// needs.
  static std::shared_ptr<CheckpointedSegment> begin(std::function<void()> run_again,
                                                    const CheckpointOptions& options);
  virtual ~CheckpointedSegment();

  /// Follows the first run, in this thread, until what is returned goes.
  virtual std::shared_ptr<void> first_run() = 0;
};

}  // namespace detail

/// Returns function(arguments...), of which no tensor is kept for backward but the arguments: backward runs
/// it once more. As torch.utils.checkpoint.checkpoint(..., use_reentrant=False), which needs neither
/// arguments nor results that require gradients:
///
///     x = ls::checkpoint([this](const at::Tensor& x) { return block->forward(x); }, x);
///
/// The function is copied, and so are the arguments (tensors by reference to their memory); what they refer
/// to must not change until backward is over, and both runs must compute the same. What operators inside
/// write to that was there before, such as running statistics and other buffers, is as after one run;
/// variables of C++, such as counters, change twice. Gradients may be taken several times. Parts may lie
/// inside of each other. Works under every strategy: units that a sharded model has gathered for the second
/// run are those that backward needs anyway.
/// @throws Error from backward, when the second run keeps other tensors than the first one would have
template <class Function, class... Arguments>
auto checkpoint(const CheckpointOptions& options, Function function, Arguments... arguments) {
  const auto segment = detail::CheckpointedSegment::begin(
      [function, arguments...]() mutable { (void)std::invoke(function, arguments...); }, options);
  const auto scope = segment->first_run();
  return std::invoke(function, arguments...);
}

template <class Function, class... Arguments>
requires std::invocable<Function&, Arguments&...>
auto checkpoint(Function function, Arguments... arguments) {
  return checkpoint(CheckpointOptions{}, std::move(function), std::move(arguments)...);
}

}  // namespace lockstep
