// Adagrad's settings.
#pragma once

#include <vector>

#include <lockstep/optim/optimizer_options.h>

namespace lockstep {

/// Steps that shrink with the sum of all squared gradients; as torch.optim.Adagrad. Duchi, Hazan, Singer:
/// JMLR 12 (2011).
struct Adagrad {
  double lr = 1e-2;                         ///< learning rate, >= 0
  double lr_decay = 0.0;                    ///< >= 0: lr is divided by 1 + lr_decay * (steps done before)
  double weight_decay = 0.0;                ///< >= 0, added to the gradient
  double initial_accumulator_value = 0.0;   ///< >= 0, where the sums start
  double eps = 1e-10;                       ///< >= 0, added to the root of the sum
  bool maximize = false;                    ///< climb instead of descend
  std::vector<ParameterGroup> groups = {};  ///< first match wins; what matches none forms the last group
};

}  // namespace lockstep
