// The metric objects among what was logged: their end of an epoch, and what checkpoints keep of them.
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

}  // namespace lockstep::detail
