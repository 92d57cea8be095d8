// MetricCollection: several metrics of the same predictions.
//
//   metrics::MetricCollection val({.prefix = "val_"});
//   val.add("acc", metrics::Accuracy(task));
//   val.add("f1", metrics::F1(task, {.average = metrics::Average::kMacro}));
//   val.update(logits, target);       // counts once for both
//   val.sync(comm);                   // one collective for both
//   for (const auto& [name, value] : val.compute()) ...  // val_acc, val_f1
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/metrics/metric.h>
#include <lockstep/state/state_tree.h>

namespace lockstep::metrics {

/// Options of MetricCollection.
struct MetricCollectionOptions {
  std::string prefix = {};   ///< put before each name
  std::string postfix = {};  ///< put behind each name
};

/// A metric of a collection, which owns it.
struct NamedMetric {
  std::string name;  ///< of the metric, without prefix and postfix
  Metric* metric;    ///< owned by the collection
};

/// Metrics by name, in the order in which they were added. Metrics whose states are equal by construction
/// (Accuracy, Precision, Recall and FBeta of one task) keep them, and count, once. Move-only. Not
/// thread-safe.
class LOCKSTEP_API MetricCollection {
 public:
  explicit MetricCollection(MetricCollectionOptions options = {});

  /// Adds a metric under `name`, or its class's name.
  /// @throws ConfigError for a name that is taken, and when a metric has been updated already
  template <std::derived_from<PredictionMetric> M>
  void add(std::string name, M metric) {
    add(std::move(name), std::make_unique<M>(std::move(metric)));
  }
  /// Adds a metric under the name of its class.
  template <std::derived_from<PredictionMetric> M>
  void add(M metric) {
    auto name = metric.name();
    add(std::move(name), std::move(metric));
  }
  /// Adds a metric under a name of its own.
  /// @throws ConfigError where the name is taken
  void add(std::string name, std::unique_ptr<PredictionMetric> metric);

  /// Takes up a batch in all metrics, or, where it fits one of them not, in none.
  /// @throws as PredictionMetric::update
  void update(const at::Tensor& preds, const at::Tensor& target);

  /// Names, with prefix and postfix, and values. Not Collective.
  std::vector<std::pair<std::string, at::Tensor>> compute() const;

  /// As those of Metric, of all metrics together. sync() is Collective and blocking.
  void reset();
  /// Makes the states those of all ranks. *Collective.*
  void sync(const Communicator& comm);
  /// Goes back to this rank's states.
  void unsync();

  /// Each metric's state under the name that it was added with.
  StateTree state() const;
  /// @throws CheckpointError as Metric::load_state; nothing has changed then
  void load_state(const StateTree& state);

  /// The metrics, names with prefix and postfix: for what syncs and logs them itself.
  std::vector<NamedMetric> metrics() const;

  /// Names as they were added, those that share states together.
  std::vector<std::vector<std::string>> compute_groups() const;

 private:
  struct Entry {
    std::string name;
    std::unique_ptr<PredictionMetric> metric;
    bool is_leader;  // updates the states, for itself and those that share them
  };

  MetricCollectionOptions options_;
  std::vector<Entry> entries_;
};

}  // namespace lockstep::metrics
