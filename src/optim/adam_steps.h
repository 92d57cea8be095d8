// Adam's coefficients, which the optimizers with an Adam inside share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <lockstep/optim/optimizer.h>

#include "optim/kernels.h"

namespace lockstep::detail {

struct AdamSettings {
  double eps = 1e-8;
  bool decoupled = true;  ///< AdamW's weight decay
  bool maximize = false;
  bool bias_correction = true;
};

/// The coefficients in one optimizer step. Neighbours mostly share group and step count, and with them two
/// powers and a root.
class AdamSteps {
 public:
  /// `groups` must outlive it.
  AdamSteps(const AdamSettings& settings, const std::vector<Optimizer::Group>& groups, double grad_scale)
      : settings_(settings), groups_(groups), grad_scale_(grad_scale) {}

  /// Of a parameter of group number `group`, in its own step number `step`, from 1.
  const AdamCoefficients& at(std::size_t group, std::int64_t step);

 private:
  AdamSettings settings_;
  const std::vector<Optimizer::Group>& groups_;
  double grad_scale_;
  std::size_t last_group_ = 0;
  std::int64_t last_step_ = 0;
  AdamCoefficients last_ = {};
};

}  // namespace lockstep::detail
