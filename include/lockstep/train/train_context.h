// What hooks, steps and callbacks see of a run. They never see the Trainer itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>
#include <lockstep/device/scalar.h>

namespace lockstep {

class AccumulationSchedule;
class AnyBatch;
class AnyModule;
class Callback;
class Logger;
class ManualOptimizer;
class Optimizer;
class Strategy;
struct BackwardOptions;
struct CheckpointInfo;
struct CheckpointState;
struct LRScheduler;
struct RunOptimizer;
struct TrainerOptions;

/// Which entry point is running; kSanityCheck is the short validation before fit.
enum class Stage {
  kFit,          ///< Trainer::fit()
  kSanityCheck,  ///< the short validation before fit
  kValidate,     ///< Trainer::validate(), and the validations of fit
  kTest,         ///< Trainer::test()
  kPredict       ///< Trainer::predict()
};

/// "fit", "sanity_check", "validate", "test" or "predict".
LOCKSTEP_API std::string_view stage_name(Stage stage);

/// What a checkpoint is to be, beside its folder.
struct SaveRequest {
  bool weights_only = false;              ///< the model and the configuration, but nothing to go on from
  std::filesystem::path replaced = {};    ///< another checkpoint: removed once this one is complete
  std::filesystem::path link = {};        ///< symbolic link to it, made once it is complete
  std::function<void()> on_failure = {};  ///< called on every rank when it could not be written
};

/// What could be saved after a failure.
enum class SavedAfterFailure {
  kNothing,  ///< nothing could be
  kWeights,  ///< by one of the ranks that are left: a checkpoint of weights only
  kRun       ///< by all of them: a checkpoint from which another process goes on
};

/// Does something with what a checkpoint would hold. Its tensors are those of the run: they may change as
/// soon as it returns.
using CheckpointCapture = std::function<void(const CheckpointState&, const CheckpointInfo&)>;

/// Metric name -> value.
using Metrics = std::map<std::string, double, std::less<>>;

/// Which validation of a fit a metric is of.
struct Measurement {
  std::int64_t number = 0;       ///< from 1; 0: what training has logged
  std::int64_t epoch = 0;        ///< counted from 0
  std::int64_t global_step = 0;  ///< of the weights that were validated
};

/// How the values of an epoch become one.
enum class ReduceFx {
  kMean,  ///< weighted by batch sizes
  kSum,   ///< the sum
  kMin,   ///< the least
  kMax    ///< the greatest
};

LOCKSTEP_API std::span<const OptionName<ReduceFx>> option_names(ReduceFx);

/// Options of log(); names and defaults are Lightning's.
struct LogOptions {
  bool prog_bar = false;              ///< show it in the progress bar
  bool logger = true;                 ///< write it to the loggers
  std::optional<bool> on_step = {};   ///< log the value of each step; default: yes in training_step, else no
  std::optional<bool> on_epoch = {};  ///< log one value per epoch; default: no in training_step, else yes
  EnumOption<ReduceFx> reduce_fx = ReduceFx::kMean;  ///< how the values of an epoch become one
  bool sync_dist = false;                            ///< reduce over ranks when it is written or monitored
  std::optional<std::int64_t> batch_size = {};  ///< weight in the epoch's mean; default: the batch's samples
  /// Log it as NAME/dataloader_idx_N where a stage has several loaders; when false, all of them make one
  /// value.
  bool add_dataloader_idx = true;

  bool operator==(const LogOptions&) const = default;
};

/// A number to log: a double or a tensor of one element, of which no graph is kept.
class LOCKSTEP_API LogValue {
 public:
  LogValue(double value) : value_(value) {}
  /// @throws ConfigError when the tensor has not exactly one element
  LogValue(const at::Tensor& tensor);
  LogValue(Scalar value) : value_(std::move(value)) {}
  /// The value that was logged.
  const Scalar& value() const { return value_; }

 private:
  Scalar value_;
};

namespace detail {
struct TrainerState;
}
namespace metrics {
class Metric;
}

/// A view of the run for the duration of one hook. Cheap to copy; never keep one.
class LOCKSTEP_API TrainContext {
 public:
  explicit TrainContext(detail::TrainerState& state) : state_(&state) {}

  /// Whether this is rank 0.
  bool is_global_zero() const;
  /// This rank, from 0.
  int global_rank() const;
  /// This rank's device, where the module and its batches are.
  at::Device device() const;
  /// Ranks of the job.
  int world_size() const;
  /// What the Trainer is doing.
  Stage stage() const;

  /// The strategy in use; strategy().barrier() and strategy().communicator() are Collective.
  Strategy& strategy() const;
  /// The module that is trained.
  AnyModule& module() const;
  /// The optimizer while fitting; of several the one that is about to step, in on_before_optimizer_step.
  /// @throws ConfigError elsewhere
  Optimizer& optimizer() const;
  /// All of them while fitting, in the order of configure_optimizers.
  std::span<const RunOptimizer> optimizers() const;

  /// Completed epochs, counted from 0: the number of the epoch that is running.
  std::int64_t current_epoch() const;
  /// Optimizer steps done since the start of fit.
  std::int64_t global_step() const;
  /// Micro-batches whose gradients wait for the others of their window (accumulate_grad_batches); 0 where the
  /// next one opens a window.
  std::int64_t open_micro_batches() const;
  /// Training samples that all ranks have gone through in fit.
  std::int64_t samples_seen() const;
  /// Batches of this rank in one training epoch, limits applied; 0 before fit, kUnknownLength where only the
  /// end of the data tells.
  std::int64_t num_training_batches() const;
  /// Optimizer steps that fit will come to, as max_epochs, max_steps and accumulate_grad_batches say: for
  /// schedules that must know the end, asked for in setup() or configure_model(). None where there is no
  /// limit, or only the end of the data tells.
  std::optional<std::int64_t> estimated_stepping_batches() const;
  /// Batches of this rank in the loader that is evaluated, limits applied; kUnknownLength where only the end
  /// of the data tells.
  std::int64_t num_evaluation_batches() const;
  /// The folder of this run; empty when nothing is written.
  const std::filesystem::path& run_dir() const;
  /// All callbacks of this run, in the order in which they are called.
  std::span<const std::shared_ptr<Callback>> callbacks() const;
  /// The options in effect.
  const TrainerOptions& options() const;
  /// Where metrics go; empty but on rank 0.
  std::span<const std::shared_ptr<Logger>> loggers() const;
  /// The schedule of the first optimizer's learning rate while fitting; none where there is none.
  const std::optional<LRScheduler>& lr_scheduler() const;
  /// Batches in which the optimizer stepped: the loggers' x-axis in fit.
  std::int64_t batches_that_stepped() const;
  /// Whether this fit validates.
  bool has_validation() const;
  /// Whether a validation comes right after this batch, if nothing stops the run before.
  bool will_validate() const;

  /// Logs `value` under `name`: lightning's `self.log`. Not Collective: with sync_dist the ranks' values are
  /// reduced together when they are written or monitored, by name; ranks may log other names, or none.
  /// @throws ConfigError where the hook does not allow logging, or both on_step and on_epoch are false
  void log(std::string_view name, const LogValue& value, const LogOptions& options = {});

  /// Logs what `metric` has come to when the epoch ends: it is synced over ranks together with the others,
  /// its value logged under `name`, and reset. Call it in each step or at the end of the epoch, on all ranks
  /// alike; `metric` must live until then. `options` may set prog_bar and logger. Not Collective.
  /// @throws ConfigError as above, and when the name is another metric's; at the end of the epoch when the
  /// value
  ///   is not one number
  void log(std::string_view name, metrics::Metric& metric, const LogOptions& options = {});

  /// The latest value of everything logged: of an epoch, from hooks of its end on, over ranks if sync_dist;
  /// of a step of training, this rank's own until it is written or sync_step_metrics() is called. Under its
  /// plain name and, where both on_step and on_epoch are set, also as NAME_step and NAME_epoch.
  const Metrics& callback_metrics() const;
  /// Sets one of them, which is not logged: Lightning's `trainer.callback_metrics[name] = value`. All ranks
  /// must do it alike. Not Collective.
  void set_callback_metric(const std::string& name, double value);
  /// Reduces over ranks what training steps have logged with sync_dist and nobody has reduced yet, in one
  /// exchange: for callbacks that decide by it. ModelCheckpoint, EarlyStopping and schedules that monitor do
  /// so themselves. Collective, blocking.
  void sync_step_metrics();
  /// Which validation of this fit the latest value of `name` is of.
  Measurement measured(std::string_view name) const;
  /// Validations of this fit that have ended.
  std::int64_t num_validations() const;
  /// The latest values logged with prog_bar.
  const Metrics& progress_bar_metrics() const;

  /// Writes a checkpoint from which another process goes on exactly here: when all hooks of this moment have
  /// been called. Possible in hooks of fit between batches (on_train_batch_end, on_train_epoch_end, ...) and
  /// of the validation within; does nothing in the sanity check. What cannot be written, for instance because
  /// the disk is full, is said on stderr, and what was there before is untouched. Collective, blocking.
  /// @throws ConfigError in other hooks
  void save_checkpoint(const std::filesystem::path& folder, const SaveRequest& request = {});
  /// Whether save_checkpoint() was asked for `folder` at this moment, and has not written it yet.
  bool will_save(const std::filesystem::path& folder) const;

  /// Hands what save_checkpoint() would write to `capture` instead, at the same moment, for a store of one's
  /// own; what a rank has a shard of is a shard whatever the strategy writes. IoError that it throws, on all
  /// ranks alike, is said on stderr. Collective as far as `capture` is; blocking. @throws as
  /// save_checkpoint()
  void capture_checkpoint(CheckpointCapture capture);

  /// Puts `schedule` in the place of accumulate_grad_batches, from the next epoch on. Not Collective, but all
  /// ranks must do it.
  void set_accumulate_grad_batches(const AccumulationSchedule& schedule);

  /// Puts `scheduler` in the place of the optimizer's schedule, or there where there is none; it starts from
  /// the groups' initial_lr. Not Collective, but all ranks must do it. @throws ConfigError outside of fit,
  /// and as Scheduler's constructor
  void set_lr_scheduler(const LRScheduler& scheduler);

  /// Renews what BatchNorm layers in training mode have measured, as weights that were averaged ask for: an
  /// epoch of training_step without gradients, steps and hooks, over which the layers take plain means; then
  /// the mean over ranks. torch.optim.swa_utils.update_bn. Possible in hooks of fit between epochs.
  /// Collective, blocking; does nothing without such layers. @throws ConfigError with manual optimisation
  void update_bn();

  /// Lets ranks find out in save_after_failure() whether all of them have failed: beside their group, which
  /// a failure may have broken. To be called in a hook before the training begins. Collective, blocking.
  /// @throws CommError, Timeout where the ranks cannot connect to rank 0 once more
  void prepare_save_after_failure();

  /// In on_exception of a fit: saves what there is. Where all ranks failed at the same place, with their
  /// group whole, they write a checkpoint from which another process goes on, with the window of
  /// micro-batches in which they failed. A rank that is alone, or whose group is broken, waits no longer than
  /// `deadline` for others; where each rank has all weights, one of those left writes NAME-weights.ckpt
  /// beside `folder`, which holds weights only. Says on stderr what it did; never throws. Not Collective.
  /// Blocks for `deadline` and the time of writing.
  SavedAfterFailure save_after_failure(const std::filesystem::path& folder, const SaveRequest& request = {},
                                       std::chrono::milliseconds deadline = std::chrono::milliseconds(500));

  /// Prints a line on rank 0, without disturbing the progress bar.
  void print(std::string_view text) const;

  /// Asks the run to end, once min_epochs and min_steps are reached; one rank's wish is enough. In a
  /// world of one it ends after this batch. Several ranks first agree, which they do at the end of
  /// each epoch and every log_every_n_steps steps, so that no step waits for it.
  void stop();
  /// The same, but checkpoints do not hold it: for callbacks that ask again in a run that goes on, should
  /// they still see a reason. All ranks must do it.
  void stop_this_run();
  /// What `callback` finds now: the same while it wishes so, until it takes the wish back. One that
  /// min_epochs or min_steps postpone is forgotten where the reason for it is gone. All ranks must do it.
  void wish_to_stop(const Callback& callback, bool wishes);
  /// Whether somebody has asked to stop.
  bool should_stop() const;

 protected:
  detail::TrainerState* state_;    ///< the run; never null
  Optimizer* stepping_ = nullptr;  ///< whose on_before_optimizer_step is running
};

/// A TrainContext inside one batch.
class LOCKSTEP_API StepContext : public TrainContext {
 public:
  /// Borrows `batch`.
  StepContext(detail::TrainerState& state, std::int64_t batch_idx, const AnyBatch& batch,
              std::int64_t dataloader_idx = 0)
      : TrainContext(state), batch_idx_(batch_idx), dataloader_idx_(dataloader_idx), batch_(&batch) {}

  /// Number of this micro-batch in its epoch, from 0; in evaluation, among those of its loader.
  std::int64_t batch_idx() const { return batch_idx_; }
  /// Number of the loader that gave it, from 0: of several in evaluation.
  std::int64_t dataloader_idx() const { return dataloader_idx_; }
  /// Samples in this rank's micro-batch.
  std::int64_t batch_size() const;
  /// The micro-batch itself: `step.batch().get<ls::Example>()`. It also knows the numbers of its samples.
  const AnyBatch& batch() const { return *batch_; }

  /// In on_train_batch_start: leaves out this batch and all that follow in this epoch, which then ends as
  /// usual. What lightning means by -1. All ranks must ask for it at the same batch.
  /// @throws ConfigError in other hooks
  void skip_epoch();

  /// Optimizer `index` of configure_optimizers, for training_step to step: Lightning's `self.optimizers()`.
  /// @throws ConfigError where there are fewer, or unless automatic_optimization() is false
  ManualOptimizer manual_optimizer(std::size_t index = 0);

  /// Runs backward from `loss` in manual optimisation. The gradients of what the loss trains are then the
  /// mean over ranks of what each rank has accumulated; where optimizers have modules of their own, only
  /// those that the loss depends on exchange theirs. `loss.backward()` itself would leave them unaveraged.
  /// Collective.
  /// @throws ConfigError unless automatic_optimization() is false and backward can start from `loss`
  void manual_backward(const at::Tensor& loss);
  /// The same with options.
  void manual_backward(const at::Tensor& loss, const BackwardOptions& options);

 private:
  friend class ManualOptimizer;

  std::int64_t batch_idx_;
  std::int64_t dataloader_idx_;
  const AnyBatch* batch_;
};

/// The p-norm of all gradients of step.optimizer(), those of the global batch: for hooks from
/// on_after_backward to on_before_optimizer_step. The total of Lightning's grad_norm(module, norm_type).
/// Collective where the strategy shards gradients. @throws as Strategy::grad_norm()
LOCKSTEP_API double grad_norm(StepContext& step, double norm_type = 2.0);

}  // namespace lockstep
