// Lion's settings.
#pragma once

#include <array>
#include <vector>

#include <lockstep/optim/optimizer_options.h>

namespace lockstep {

/// Steps of one size, in the direction of the sign of a momentum; as deepspeed.ops.lion, with its defaults.
/// Chen et al.: arXiv 2302.06675, who take betas (0.9, 0.99). Half of AdamW's state, and a learning rate 3 to
/// 10 times smaller. Where the momentum is exactly 0 nothing moves, as in the paper; DeepSpeed's kernels move
/// by lr there, on the CPU down and on the GPU up.
struct Lion {
  double lr = 1e-3;  ///< learning rate, >= 0: how far every element moves
  std::array<double, 2> betas = {
      0.9, 0.999};            ///< decay in the mean that gives the sign, and of the mean that is kept; [0, 1)
  double weight_decay = 0.0;  ///< >= 0; parameters shrink by lr * weight_decay each step
  std::vector<ParameterGroup> groups = {};  ///< first match wins; what matches none forms the last group
};

}  // namespace lockstep
