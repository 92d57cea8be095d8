// Makes one value per metric of what all ranks have.
#pragma once

#include <string>
#include <vector>

#include <lockstep/comm/communicator.h>
#include <lockstep/train/log_options.h>

namespace lockstep::detail {

/// One rank's part of a metric.
struct MetricPart {
  std::string name;
  ReduceFx reduce_fx = ReduceFx::kMean;
  bool prog_bar = false;
  bool logger = true;
  bool on_step = false;  ///< it has a step fork, too
  double value = 0;      ///< kMean: weighted sum
  double weight = 0;     ///< kMean only
};

/// Adds `value` to `total` as `reduce_fx` says; NaN wins over every minimum and maximum.
double accumulated(ReduceFx reduce_fx, double total, double value);

/// The value that accumulated() changes nothing of.
double neutral(ReduceFx reduce_fx);

/// The metrics of all ranks by name, each part accumulated in rank order, in float64. Ranks may have
/// logged other metrics, in another order, or none: a metric that a rank lacks adds nothing.
/// Collective, one exchange; nothing is sent in a world of one. Equal on all ranks, sorted by name.
std::vector<MetricPart> merge_parts(const Communicator& communicator, const std::vector<MetricPart>& own);

}  // namespace lockstep::detail
