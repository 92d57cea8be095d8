// What trials change of a model and its run, to be put back behind them.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <lockstep/state/state_tree.h>

#include "train/loops/trainer_state.h"

namespace lockstep::detail {

/// This rank's copy of weights, gradients, optimizer, schedule, precision, random generators and of what
/// module and data module keep. Borrows its arguments.
class RunSnapshot {
 public:
  RunSnapshot(const RunSetup& setup, const RunData& data);

  /// Puts all of it back, to the bit. Not Collective.
  void restore() const;

 private:
  const RunSetup& setup_;
  const RunData& data_;
  StateTree weights_;
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients_;  // parameters, and copies of their gradients
  std::vector<std::pair<torch::nn::Module*, bool>> training_flags_;
  std::vector<StateTree> optimizers_;
  std::vector<StateTree> schedulers_;  // as many; empty where an optimizer has none
  StateTree precision_;
  StateTree module_;
  StateTree data_module_;
  StateTree random_;
};

}  // namespace lockstep::detail
