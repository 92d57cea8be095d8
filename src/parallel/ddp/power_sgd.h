// What PowerSGD keeps from step to step.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/parallel/ddp/comm_hook.h>
#include <lockstep/state/state_tree.h>

#include "parallel/module_states.h"

namespace lockstep::detail {

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
