// Reduces logged numbers and metric objects over ranks to one value per metric.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/device/scalar.h>
#include <lockstep/metrics/metric.h>
#include <lockstep/state/state_tree.h>
#include <lockstep/train/log_options.h>

namespace lockstep::metrics::detail {
class KeptMetric;
}

namespace lockstep::detail {

/// A metric object that was logged, or its state from a checkpoint until it is logged again.
struct LoggedMetric {
  std::string name;
  metrics::Metric* metric;  ///< borrowed, or `kept`
  LogOptions options;
  std::shared_ptr<metrics::detail::KeptMetric> kept = {};
  std::optional<double> value = {};  ///< of all ranks when a checkpoint was taken, where it could be told

  bool is_here() const { return kept == nullptr; }
};

/// Computes the value of each metric over all ranks, and resets them. A metric that no rank has logged since
/// the checkpoint was loaded has the value that the checkpoint holds, or none. Collective.
/// @throws ConfigError on all ranks where one of them lacks a metric that others have, or a metric has more
/// than one number
std::map<std::string, double> finish_metrics(const std::vector<LoggedMetric>& logged,
                                             const Communicator& communicator);

/// Sets `value` of each metric that all ranks have, for a checkpoint. Collective.
LOCKSTEP_API void keep_values(std::vector<LoggedMetric>& logged, const Communicator& communicator);

/// Adds the state of a metric object to `tree`, without its name and options.
void add_state(StateTree& tree, const LoggedMetric& logged);

/// The inverse of add_state(). @throws CheckpointError as the getters of StateTree
LoggedMetric kept_metric(std::string name, const LogOptions& options, const StateTree& tree);

/// Whether load_state() has been called since reset().
bool is_loaded(const metrics::Metric& metric);

/// Moves the state from the checkpoint into `metric`, which takes its place.
void claim(LoggedMetric& logged, metrics::Metric& metric);

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
/// The same with `value` times `weight`, on the device where the value is there.
Scalar accumulated(ReduceFx reduce_fx, const Scalar& total, const Scalar& value, double weight);

/// The value from which accumulated() starts.
double neutral(ReduceFx reduce_fx);

/// Merges the metrics of all ranks by name, in rank order and in float64. Ranks may have logged different
/// metrics, in another order, or none: a metric that a rank lacks adds nothing. One exchange; nothing is sent
/// where there is one rank. The result is equal on all ranks and sorted by name. Collective.
std::vector<MetricPart> merge_parts(const Communicator& communicator, const std::vector<MetricPart>& own);

}  // namespace lockstep::detail
