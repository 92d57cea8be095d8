// ModelCheckpoint: saves checkpoints of a fit, and decides which of them stay on disk and how they are named.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/option_type.h>
#include <lockstep/base/option_visitor.h>
#include <lockstep/metrics/monitor_mode.h>
#include <lockstep/train/hooks.h>

namespace lockstep {

namespace detail {
class AgreedClock;
}

/// Whether the latest checkpoint is also there as last.ckpt.
enum class SaveLast {
  kFalse,
  kTrue,  ///< as a checkpoint of its own
  kLink   ///< as a symbolic link to the latest
};

LOCKSTEP_API std::span<const OptionName<SaveLast>> option_names(SaveLast);

/// Names, meaning and defaults are Lightning's. Of every_n_train_steps, train_time_interval and
/// every_n_epochs one may be given; none of them: every epoch. 0 switches an interval off.
struct ModelCheckpointOptions {
  std::filesystem::path dirpath = {};  ///< empty: checkpoints/ in the run's folder
  std::string filename = {};           ///< "{epoch}-{val_loss:.2f}" and the like; empty: "{epoch}-{step}"
  std::string monitor = {};            ///< what was logged under this name; empty: the latest is the best
  bool verbose = false;                ///< say what is saved, and what is not
  EnumOption<SaveLast> save_last = SaveLast::kFalse;  ///< whether `last.ckpt` is kept
  int save_top_k = 1;              ///< number of the best checkpoints that are stored; -1: all, 0: none
  bool save_weights_only = false;  ///< leaves out optimizer, schedule and loops
  EnumOption<MonitorMode> mode = MonitorMode::kMin;      ///< whether less or more of the metric is better
  bool auto_insert_metric_name = true;                   ///< {val_loss} becomes val_loss=0.12; false: 0.12
  std::optional<std::int64_t> every_n_train_steps = {};  ///< optimizer steps, at least, since the last
  std::optional<std::chrono::milliseconds> train_time_interval = {};  ///< at least so much time between saves
  std::optional<std::int64_t> every_n_epochs = {};                    ///< epochs between saves
  /// Save at the end of the training epoch, before what follows, or of the validation. Default: the
  /// validation, where it comes once an epoch.
  std::optional<bool> save_on_train_epoch_end = {};
  bool save_on_exception = false;      ///< what can be saved of a fit that fails: see save_after_failure()
  bool enable_version_counter = true;  ///< a name that is taken gets -v1, -v2, ...; false: it is replaced
};

LOCKSTEP_API void describe(OptionVisitor& visitor, ModelCheckpointOptions& options);

/// Saves checkpoints while fit runs, and removes those that are no longer among the best; always after the
/// new one is complete. All ranks go by the metrics of rank 0. Of equal values the first that was saved is
/// the best, and the first to go. Weights that no validation has measured rank behind all that were measured,
/// the latest of them first, with the value and the name of NaN.
///
/// Several may be given, with other options; they are called after all other callbacks. Their own state is in
/// the checkpoints, so that a resumed run knows what is best. Lightning's ModelCheckpoint.
class LOCKSTEP_API ModelCheckpoint final : public Callback {
 public:
  /// @throws ConfigError naming the option that is out of range, or the intervals of which there are two
  explicit ModelCheckpoint(ModelCheckpointOptions options = {});
  ~ModelCheckpoint() override;

  /// The best so far; empty before the first.
  const std::filesystem::path& best_model_path() const { return best_model_path_; }
  /// Its value of `monitor`; none without a monitor, or where it was not measured.
  std::optional<double> best_model_score() const { return best_model_score_; }
  /// The checkpoints that are stored, each with its value of `monitor`.
  std::map<std::filesystem::path, double> best_k_models() const;
  /// The latest last.ckpt; empty where there is none.
  const std::filesystem::path& last_model_path() const { return last_model_path_; }

  /// The name that a checkpoint of these metrics gets, without a folder: "epoch=3-step=40.ckpt". What is
  /// missing counts as 0.
  std::string format_checkpoint_name(const Metrics& metrics, std::int64_t epoch, std::int64_t step) const;

  CallbackPlace place() const override { return CallbackPlace::kCheckpoint; }
  /// The key of the callback's state, which differs between callbacks with other options, as Lightning's
  /// does.
  std::string state_key() const override;
  StateTree state() const override;
  void load_state(const StateTree& state) override;

  void setup(TrainContext& context) override;
  void on_fit_start(TrainContext& context) override;
  void on_train_start(TrainContext& context) override;
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override;
  void on_train_epoch_end(TrainContext& context) override;
  void on_train_end(TrainContext& context) override;
  void on_validation_end(TrainContext& context) override;
  void on_exception(TrainContext& context, const std::exception& error) override;

 private:
  bool should_skip(const TrainContext& context) const;
  bool saves_on_train_epoch_end(const TrainContext& context) const;
  bool epoch_is_due(const TrainContext& context) const;
  bool waits_for_monitor(const StepContext& step) const;
  bool steps_are_due(const TrainContext& context);

  struct Saved {
    std::filesystem::path path = {};
    double value = 0;         // of `monitor`
    bool is_measured = true;  // of these weights
    std::int64_t number = 0;  // in the order of saving
  };

  void save(TrainContext& context);
  void save_latest(TrainContext& context);
  void save_if_among_best(TrainContext& context, Saved candidate);
  std::optional<std::filesystem::path> place_for(const TrainContext& context, const Saved& candidate) const;
  void choose_best();
  void keep(const Saved& saved);
  bool drop(const std::filesystem::path& path);
  void forget_missing(const TrainContext& context);
  void save_last(TrainContext& context);
  void write_last(TrainContext& context);
  void write(TrainContext& context, const std::filesystem::path& path, const Saved& replaced,
             const std::filesystem::path& former_best);
  void refuse_name_of_last(const TrainContext& context) const;
  void refuse_shared(const TrainContext& context, const std::filesystem::path& path) const;
  std::filesystem::path last_path() const;
  bool is_inside_dirpath(const std::filesystem::path& path) const;
  void forget(const std::filesystem::path& path, const Saved& replaced,
              const std::filesystem::path& former_best);
  std::filesystem::path free_path(const TrainContext& context, const std::filesystem::path& replaced,
                                  bool is_measured = true) const;
  std::optional<Saved> monitored(const TrainContext& context);
  void load_kept(const StateTree& models);
  bool is_better(const Saved& one, const Saved& than) const;
  const Saved& worst() const;

  ModelCheckpointOptions options_;
  std::filesystem::path dirpath_;
  std::unique_ptr<detail::AgreedClock> clock_;
  std::vector<Saved> kept_;  // the best, in the order of saving
  std::filesystem::path best_model_path_;
  std::optional<double> best_model_score_;
  std::filesystem::path last_model_path_;
  std::filesystem::path latest_;               // what was written last
  std::int64_t last_global_step_saved_ = 0;    // nothing is saved before the first step
  std::int64_t saves_ = 0;                     // among the best, ever
  std::optional<std::int64_t> last_due_ = {};  // the step from which every_n_train_steps counts
  bool waits_for_validation_ = false;
  bool has_warned_of_missing_ = false;
  bool has_warned_of_stale_ = false;
};

}  // namespace lockstep
