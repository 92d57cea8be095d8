// Collects what is logged step by step, and reduces it over ranks to one value per metric at the end of an
// epoch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/device/scalar.h>
#include <lockstep/metrics/metric.h>
#include <lockstep/state/state_tree.h>
#include <lockstep/train/train_context.h>

namespace lockstep::metrics::detail {
class SavedMetric;
}

namespace lockstep::detail {

class StepRecording;

/// A metric object that was logged, or its state from a checkpoint until it is logged again.
struct LoggedMetric {
  std::string name;
  metrics::Metric* metric;  ///< borrowed, or `saved`
  LogOptions options;
  std::shared_ptr<metrics::detail::SavedMetric> saved = {};
  std::optional<double> value = {};  ///< over all ranks, as keep_values() found it, or the checkpoint has it
  std::optional<std::uint64_t> revision = {};  ///< of the metric when this rank worked it out

  bool is_here() const { return saved == nullptr; }
  bool is_unchanged() const;
};

/// Computes the value of each metric over all ranks, unless keep_values() has and no rank has changed it
/// since, and resets them. A metric that no rank has logged since the checkpoint was loaded has the value
/// that the checkpoint holds, or none. Collective.
/// @throws ConfigError on all ranks where one of them lacks a metric that others have, or a metric has more
/// than one number
std::map<std::string, double> finish_metrics(const std::vector<LoggedMetric>& logged,
                                             const Communicator& communicator);

/// Sets `value` of each metric that all ranks have, which goes on as it was. Collective.
LOCKSTEP_API void keep_values(std::vector<LoggedMetric>& logged, const Communicator& communicator);

/// Adds the state of a metric object to `tree`, without its name and options.
void add_state(StateTree& tree, const LoggedMetric& logged);

/// The inverse of add_state(). @throws CheckpointError as the getters of StateTree
LoggedMetric saved_metric(std::string name, const LogOptions& options, const StateTree& tree);

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
  bool on_step = false;
  bool on_epoch = true;
  bool of_epoch_hook = false;  ///< logged by a hook that belongs to no batch
  double value = 0;            ///< kMean: weighted sum
  double weight = 0;           ///< kMean only
};

/// Adds `value` to `total` as `reduce_fx` says; NaN wins over every minimum and maximum.
double accumulated(ReduceFx reduce_fx, double total, double value);
/// The same with `value` times `weight`, on the device where the value is there.
Scalar accumulated(ReduceFx reduce_fx, const Scalar& total, const Scalar& value, double weight);

/// The value from which accumulated() starts.
double neutral(ReduceFx reduce_fx);

/// Merges the metrics of all ranks by name and kind of hook, in rank order and in float64. Ranks may have
/// logged different metrics, in another order, or none: a metric that a rank lacks adds nothing. One
/// exchange; nothing is sent where there is one rank. The result is equal on all ranks and sorted by name.
/// Collective.
std::vector<MetricPart> merge_parts(const Communicator& communicator, const std::vector<MetricPart>& own);

/// What the running hook may log, and the defaults of its options.
struct LogScope {
  bool allowed = false;
  bool step_allowed = false;  ///< on_step makes sense: the hook belongs to one batch
  bool on_step = false;       ///< default of on_step
  bool on_epoch = false;      ///< default of on_epoch
  /// The loader that the hook belongs to, where a stage has several.
  std::optional<std::int64_t> dataloader_idx = {};
};

inline constexpr LogScope kNoLog{};
inline constexpr LogScope kTrainStepLog{.allowed = true, .step_allowed = true, .on_step = true};
inline constexpr LogScope kEvalStepLog{.allowed = true, .step_allowed = true, .on_epoch = true};
inline constexpr LogScope kEpochLog{.allowed = true, .on_epoch = true};

/// Metric names with values, in the order of their first appearance.
using MetricRow = std::vector<std::pair<std::string, double>>;

/// Splits a row of evaluation by loader: each gets its own metrics, and those that belong to no loader.
LOCKSTEP_API std::vector<Metrics> by_loader(const MetricRow& row, std::size_t num_loaders);

/// Values by name, read from the device when somebody looks at them.
class LazyMetrics {
 public:
  LazyMetrics() = default;
  LazyMetrics(Metrics known) : known_(std::move(known)) {}

  void set(const std::string& name, const Scalar& value) {
    if (value.is_on_device()) {
      unread_.insert_or_assign(name, value);
      return;
    }
    known_.insert_or_assign(name, value.value());
    if (!unread_.empty()) unread_.erase(name);
  }

  const Metrics& read() const {
    for (const auto& [name, value] : unread_) known_.insert_or_assign(name, value.value());
    unread_.clear();
    return known_;
  }

  double at(const std::string& name) const { return read().at(name); }
  bool operator==(const Metrics& values) const { return read() == values; }

 private:
  mutable Metrics known_;
  mutable std::map<std::string, Scalar> unread_;  // newer than what known_ has under the same name
};

/// The latest values of everything logged, whichever loop logged it.
struct MetricBoard {
  LazyMetrics callback;
  LazyMetrics progress_bar;
  std::map<std::string, Measurement, std::less<>> measured;  ///< of what a validation within fit has logged
  Measurement validation;                                    ///< the one that runs, or the last
  std::int64_t num_validations = 0;                          ///< within fit, that have ended
};

/// The values of one loop. Training and evaluation have one log each, since they interleave. As in Lightning
/// a name that is logged both by hooks of batches and by hooks of the epoch has a value of each; where both
/// give one for the epoch under that name, that of the epoch's hooks is the one.
class LOCKSTEP_API MetricLog {
 public:
  /// `measures`: this is the log of validations and tests.
  explicit MetricLog(MetricBoard& board, bool measures = false) : board_(board), measures_(measures) {}

  /// Sets what may be logged. Outside of batches a value has the weight 1.
  void set_scope(const LogScope& scope) {
    scope_ = scope;
    if (!scope.step_allowed) batch_size_ = 1;
  }
  const LogScope& scope() const { return scope_; }
  /// Samples in the current batch: the default weight of what it logs.
  void set_batch_size(std::int64_t samples) { batch_size_ = samples; }

  /// @throws ConfigError when the scope or the options do not allow it
  void log(std::string_view name, const Scalar& value, const LogOptions& options);

  /// Keeps a reference to `metric` until the epoch ends. State from a checkpoint precedes its own updates.
  /// @throws ConfigError when the scope or the options do not allow it, or the name is taken
  void log(std::string_view name, metrics::Metric& metric, const LogOptions& options);

  /// The latest step values, this rank's own.
  MetricRow step_row();
  /// Forgets the latest step values.
  void drop_step_values() {
    for (Entry& entry : entries_) entry.has_step_value = false;
  }
  /// Reduces the latest step values over ranks where sync_dist asks for it, each once and over those ranks
  /// that have a new one; all ranks have it then. Collective.
  void sync_step_values(const Communicator& communicator);
  /// Shows on the board what finish_epoch() would give now, for hooks of the epoch's end. Collective.
  void show_epoch(const Communicator& communicator);
  /// Reduces the epoch's values, over ranks where sync_dist asks for it, and forgets them. Collective.
  MetricRow finish_epoch(const Communicator& communicator);
  /// Ends one of several loaders: replaces its metric objects by their values for the end of the epoch, and
  /// resets them for the next loader. Collective.
  void finish_loader(const Communicator& communicator, std::int64_t dataloader_idx);
  /// Forgets what was collected, without reducing.
  void discard() {
    entries_.clear();
    metrics_.clear();
    unclaimed_.clear();
  }
  /// Calls discard() and resets the metric objects that were logged.
  void reset();
  /// The metrics that were logged since the epoch began.
  const std::vector<LoggedMetric>& metrics() const { return metrics_; }

  /// Computes for state() the value that each metric would have if the epoch ended now. Collective.
  void keep_metric_values(const Communicator& communicator) { keep_values(metrics_, communicator); }

  /// What this rank has collected since the epoch began, not reduced yet.
  StateTree state() const;
  /// Goes on from there. @throws CheckpointError as the getters of StateTree; nothing has changed then
  void load_state(const StateTree& state);

 private:
  void log_in_replays(StepRecording& recording, std::string name, const Scalar& value,
                      const LogOptions& options);

  struct Entry {
    std::string name;
    std::string step_name;   // NAME_step when on_epoch is set too
    std::string epoch_name;  // NAME_epoch when on_step is set too
    LogOptions options;
    bool of_epoch_hook = false;
    bool is_adopted = false;  // only other ranks have logged it so far
    bool on_step = false;
    bool on_epoch = false;
    Scalar step_value = 0;
    bool has_step_value = false;
    bool is_synced = false;  // the step value is that of all ranks
    Scalar accumulated = 0;  // weighted sum, sum, min or max
    double weight = 0;
  };

  void check_name(std::string_view name) const;
  // Appends the number of the loader where the name belongs to one.
  std::string name_of(std::string_view name, const LogOptions& options) const;
  void add(std::string_view name, const Scalar& value, const LogOptions& options);
  static Entry make_entry(std::string name, const LogOptions& options, bool on_step, bool on_epoch);
  bool has_number(std::string_view name) const;
  Entry* find(std::string_view name, bool of_epoch_hook);
  Entry& entry_of(std::string_view name, LogOptions options);
  static MetricPart part_of(const Entry& entry, double value, double weight);
  Entry& adopt(const MetricPart& part);
  MetricRow reduce_epoch(const Communicator& communicator);
  void merge_epoch(const Communicator& communicator);
  void warn_if_counted_twice(const std::string& name, const metrics::Metric& metric);
  void finish_metrics(const Communicator& communicator, MetricRow& row);
  void publish(const LoggedMetric& logged, double value);
  void publish_step(const Entry& entry);
  void publish_epoch(const Entry& entry, double value);
  void show(const std::string& name, const Scalar& value);

  MetricBoard& board_;
  bool measures_;
  LogScope scope_;
  std::int64_t batch_size_ = 1;
  std::vector<Entry> entries_;
  std::vector<LoggedMetric> metrics_;   // in the order of their first call
  std::vector<std::string> unclaimed_;  // of which a checkpoint has told the value
};

}  // namespace lockstep::detail
