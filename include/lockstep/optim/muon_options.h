// Muon's settings.
#pragma once

#include <array>
#include <vector>

#include <lockstep/optim/optimizer_options.h>

namespace lockstep {

/// How Muon's learning rate follows the shape of a matrix of `rows` x `columns`.
enum class AdjustLr {
  kOriginal,      ///< times sqrt(max(1, rows / columns)); torch's "original"
  kMatchRmsAdamw  ///< times 0.2 sqrt(max(rows, columns)); torch's "match_rms_adamw"
};

/// Momentum whose update of a matrix is made nearly orthogonal by Newton-Schulz iterations, in bfloat16; as
/// torch.optim.Muon. Jordan et al.: kellerjordan.github.io/posts/muon. For hidden matrices: parameters that
/// do not have two dimensions, and those whose name contains "embed" or "lm_head" (DeepSpeed's rule), get
/// AdamW with the settings that start with adam_. A group of parameters that has both kinds becomes two,
/// the matrices first. Takes pieces, see PieceExchange. add_param_group() is refused.
struct Muon {
  double lr = 1e-3;           ///< learning rate of the matrices, >= 0
  double weight_decay = 0.1;  ///< of all parameters, >= 0; they shrink by their lr * weight_decay each step
  double momentum = 0.95;     ///< in [0, 1]: share of the momentum that is kept
  bool nesterov = true;       ///< look ahead by one more share of the gradient
  std::array<double, 3> ns_coefficients = {3.4445, -4.7750, 2.0315};  ///< of the iteration's polynomial
  double eps = 1e-7;                               ///< >= 0, the least norm that an update is divided by
  int ns_steps = 5;                                ///< iterations, 1 to 99
  AdjustLr adjust_lr_fn = AdjustLr::kOriginal;     ///< how the shape enters the learning rate
  double adam_lr = 3e-4;                           ///< learning rate of the other parameters, >= 0
  std::array<double, 2> adam_betas = {0.9, 0.95};  ///< as AdamW's betas
  double adam_eps = 1e-10;                         ///< as AdamW's eps
  bool momentum_in_memory = false;  ///< where state is on disk, all but the momentum of the matrices is
  std::vector<ParameterGroup> groups = {};  ///< first match wins; what matches none forms the last group.
                                            ///< lr is for both kinds, momentum for matrices, betas for others
};

}  // namespace lockstep
