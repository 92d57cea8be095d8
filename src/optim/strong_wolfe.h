// A line search for a step length that meets the strong Wolfe conditions.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace lockstep::detail {

/// The loss along a direction.
struct LinePoint {
  double length = 0;  ///< of the step from the start
  double loss = 0;
  double slope = 0;          ///< of the loss, along the direction
  at::Tensor gradient = {};  ///< flat
};

struct LineSearchResult {
  LinePoint point;
  int evaluations = 0;
};

/// Brackets a step that lowers the loss enough and flattens its slope enough, then narrows the bracket by
/// cubic interpolation; at most 25 evaluations. `start` is the point of length 0, `evaluate` gives the point
/// of a length, `direction_max` is the direction's largest element. As torch's strong_wolfe; Nocedal, Wright:
/// Numerical Optimization, algorithms 3.5 and 3.6.
LineSearchResult strong_wolfe(const LinePoint& start, double first_length, double direction_max,
                              double tolerance_change,
                              const std::function<LinePoint(double length)>& evaluate);

}  // namespace lockstep::detail
