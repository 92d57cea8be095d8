// EarlyStopping: ends a fit when what it watches no longer improves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/train/callbacks/model_checkpoint.h>

namespace lockstep {

/// Names, meaning and defaults are Lightning's.
struct EarlyStoppingOptions {
  std::string monitor = {};  ///< the name of the logged metric
  double min_delta = 0.0;    ///< what counts as better: by more than this
  int patience = 3;          ///< checks without anything better, after which the fit ends
  bool verbose = false;      ///< say when it gets better
  EnumOption<MonitorMode> mode = MonitorMode::kMin;  ///< whether less or more is better
  bool strict = true;        ///< a metric that was not logged is an error; false: a warning
  bool check_finite = true;  ///< NaN and infinity end the fit
  std::optional<double> stopping_threshold = {};    ///< a value better than this ends the fit
  std::optional<double> divergence_threshold = {};  ///< a value worse than this ends the fit
  /// Check at the end of the training epoch, or of each validation. Default: of the epoch, where validation
  /// comes once in each or never.
  std::optional<bool> check_on_train_epoch_end = {};
};

LOCKSTEP_API void describe(OptionVisitor& visitor, EarlyStoppingOptions& options);

/// Why a fit was ended.
enum class StoppingReason {
  kNotStopped,           ///< it was not
  kStoppingThreshold,    ///< the metric is good enough
  kDivergenceThreshold,  ///< the metric is too bad
  kPatienceExhausted,    ///< the metric has not improved for `patience` checks
  kNonFinite             ///< the metric is infinite or not a number
};

/// All ranks go by the metric of rank 0. Each value that a validation has measured is checked once.
/// min_epochs and min_steps postpone the end, which is forgotten where the metric is better again before
/// them, in a run that goes on from a checkpoint as in one that was not interrupted. A run that goes on from
/// a checkpoint of one that was stopped stops at once, unless the options of the new run have no reason to:
/// a larger patience goes on. Lightning's EarlyStopping.
class LOCKSTEP_API EarlyStopping final : public Callback {
 public:
  /// @throws ConfigError without a monitor, or for a negative patience
  explicit EarlyStopping(EarlyStoppingOptions options);

  /// Checks in a row without improvement.
  int wait_count() const { return wait_count_; }
  /// The epoch in which it stopped the fit; 0 where it has not.
  std::int64_t stopped_epoch() const { return stopped_epoch_; }
  /// The best value so far.
  double best_score() const { return best_score_; }
  /// Why the fit was ended.
  StoppingReason stopping_reason() const { return reason_; }
  /// One sentence; empty where it has not stopped the fit.
  const std::string& stopping_reason_message() const { return message_; }

  CallbackPlace place() const override { return CallbackPlace::kMonitor; }
  std::string state_key() const override;
  StateTree state() const override;
  void load_state(const StateTree& state) override;

  void setup(TrainContext& context) override;
  void on_train_start(TrainContext& context) override;
  void on_train_epoch_end(TrainContext& context) override;
  void on_validation_end(TrainContext& context) override;

 private:
  bool checks_on_train_epoch_end(const TrainContext& context) const;
  void check(TrainContext& context);
  StoppingReason judge(double value);
  std::string reason_for(double value) const;
  bool is_better(double value, double than) const;
  StoppingReason passed_limit(double value) const;
  StoppingReason reason_to_stay_stopped() const;
  void conclude_anew(TrainContext& context);
  void conclude(TrainContext& context, StoppingReason reason, double value);
  void begin_anew();

  EarlyStoppingOptions options_;
  int wait_count_ = 0;
  std::int64_t stopped_epoch_ = 0;
  double best_score_ = 0;
  StoppingReason reason_ = StoppingReason::kNotStopped;
  std::string message_;
  std::int64_t checked_ = 0;               // the number of the validation whose value was checked last
  std::optional<double> last_value_ = {};  // that was checked
  bool has_warned_ = false;                // of a metric that is not there yet
};

}  // namespace lockstep
