// One value per metric of what all ranks have: of the numbers that they logged, and of metric objects.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/metrics/metric.h>
#include <lockstep/state/state_tree.h>
#include <lockstep/train/log_options.h>

namespace lockstep::metrics::detail {
class KeptMetric;
}

namespace lockstep::detail {

/// A metric that was logged, or what a checkpoint has kept of one until it is logged again.
struct LoggedMetric {
  std::string name;
  metrics::Metric* metric;  ///< borrowed, or `kept`
  LogOptions options;
  std::shared_ptr<metrics::detail::KeptMetric> kept = {};
  std::optional<double> value = {};  ///< of all ranks when a checkpoint was taken, where it could be told

  bool is_here() const { return kept == nullptr; }
};

/// The value of each over all ranks; then all are reset. One that was logged nowhere since a checkpoint was
/// taken has the value that it had there, or none. Collective.
/// @throws ConfigError on all ranks when one of them lacks a metric that others have, or a metric has more
/// than one number
std::map<std::string, double> finish_metrics(const std::vector<LoggedMetric>& logged,
                                             const Communicator& communicator);

/// Sets the `value` of each that all ranks have. Collective.
LOCKSTEP_API void keep_values(std::vector<LoggedMetric>& logged, const Communicator& communicator);

/// What a checkpoint keeps of one beside its name and options.
void add_state(StateTree& tree, const LoggedMetric& logged);

/// The inverse. @throws CheckpointError as the getters of StateTree
LoggedMetric kept_metric(std::string name, const LogOptions& options, const StateTree& tree);

/// Whether load_state() has been called since reset().
bool is_loaded(const metrics::Metric& metric);

/// `metric` takes the place of what was kept of it.
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

/// The value that accumulated() changes nothing of.
double neutral(ReduceFx reduce_fx);

/// The metrics of all ranks by name, each part accumulated in rank order, in float64. Ranks may have
/// logged other metrics, in another order, or none: a metric that a rank lacks adds nothing.
/// Collective, one exchange; nothing is sent in a world of one. Equal on all ranks, sorted by name.
std::vector<MetricPart> merge_parts(const Communicator& communicator, const std::vector<MetricPart>& own);

}  // namespace lockstep::detail
