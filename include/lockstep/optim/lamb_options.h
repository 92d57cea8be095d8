// Lamb's settings.
#pragma once

#include <array>
#include <vector>

#include <lockstep/optim/optimizer_options.h>

namespace lockstep {

/// Adam whose step is scaled, for each parameter tensor, by the trust ratio |parameter| / |update|: for large
/// batches. As DeepSpeed's FusedLamb. You et al.: arXiv 1904.00962. Takes pieces, see PieceExchange.
struct Lamb {
  double lr = 1e-3;  ///< learning rate, >= 0
  std::array<double, 2> betas = {0.9,
                                 0.999};    ///< decay of the running means of gradient and square, in [0, 1)
  double eps = 1e-8;                        ///< >= 0, added to the root of the second moment
  double weight_decay = 0.0;                ///< >= 0, times the parameter, added to the update
  bool bias_correction = true;              ///< correct the means for their start at zero
  bool eps_inside_sqrt = false;             ///< add eps under the root instead of to it
  double max_coeff = 10.0;                  ///< largest trust ratio, >= min_coeff
  double min_coeff = 0.01;                  ///< smallest trust ratio, >= 0
  std::vector<ParameterGroup> groups = {};  ///< first match wins; what matches none forms the last group
};

}  // namespace lockstep
