// What comm hooks are made of: where gradients lie in a bucket, their average in two halves, what PowerSGD
// keeps from step to step; and the hook that options ask for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>
#include <lockstep/parallel/ddp/comm_hook.h>
#include <lockstep/parallel/ddp/ddp.h>
#include <lockstep/state/state_tree.h>

#include "parallel/module_states.h"

namespace lockstep::detail {

/// A tensor on its way to becoming its average over ranks.
class PendingAverage {
 public:
  PendingAverage() = default;
  /// Starts it: `tensor` is summed, then divided by `divisor`. Collective, asynchronous.
  PendingAverage(at::Tensor tensor, int divisor, const Communicator& comm);

  /// Blocks until it is done, and returns the tensor. To be called once.
  at::Tensor finish() const;

 private:
  at::Tensor tensor_;
  std::optional<int> divisor_;  // what is left to do once the sum is there
  Work work_;
};

/// The parts of a flat `buffer` that hold the gradients of `parameters`, in their shapes. One after the
/// other, each with its parameter's strides if that is dense, else row by row.
std::vector<at::Tensor> gradient_views(const at::Tensor& buffer, const std::vector<at::Tensor>& parameters);

/// @throws ConfigError naming the option that is out of range
void validate(const PowerSgd& options);

/// The memory of one parameter: kept by parameter, since buckets change.
struct PowerSgdMemory {
  at::Tensor parameter;  ///< whose address is the key: kept so that it stays taken
  at::Tensor error;      ///< what compression lost, n x m; undefined: nothing
  at::Tensor q;          ///< where the next approximation starts, m x r; undefined: anew
  bool is_open = false;  ///< a step has begun: until it is over `error` holds the whole gradient
};

class PowerSgdStep;

class PowerSgdState {
 public:
  /// @throws ConfigError
  explicit PowerSgdState(const PowerSgd& chosen) : options(chosen) { validate(chosen); }

  /// The memory of `parameter`, whose gradient is a matrix of n x m and approximated by rank r, without
  /// what does not fit or was left by a step that failed.
  PowerSgdMemory& memory_of(const at::Tensor& parameter, at::IntArrayRef error_sizes,
                            at::IntArrayRef q_sizes);

  /// All of it, of the parameters named; tensors are copies. Another rank's differs: errors are its own.
  StateTree state(const std::vector<NamedTensor>& named) const;
  /// @throws CheckpointError
  void load_state(const StateTree& state, const std::vector<NamedTensor>& named);

  const PowerSgd options;
  std::int64_t iteration = 0;                                ///< averaged passes
  std::vector<std::weak_ptr<PowerSgdStep>> open_steps = {};  ///< of this pass, in the order of buckets

 private:
  std::unordered_map<const at::TensorImpl*, PowerSgdMemory> memories_;
};

}  // namespace lockstep::detail

namespace lockstep {

/// The hook that works on `state`.
CommHook power_sgd_hook(std::shared_ptr<detail::PowerSgdState> state);

}  // namespace lockstep

namespace lockstep::detail {

/// What ddp_comm_hook powerSGD will keep from step to step; null for other hooks.
/// @throws ConfigError for PowerSGD's options
std::shared_ptr<PowerSgdState> make_power_sgd_state(const Ddp& options);

/// One's own, or the built-in one, with its wrapper around it.
CommHook make_comm_hook(const Ddp& options, const std::shared_ptr<PowerSgdState>& power_sgd);

/// Whether gradients travel as they are and come back as their average: by allreduce_hook() alone.
bool averages_plainly(const Ddp& options);

/// "allreduce", "fp16_compress", ..., or "custom"; with the wrapper, if any: "fp16_compress(powerSGD)".
std::string name_of_comm_hook(const Ddp& options);

}  // namespace lockstep::detail
