// Averages of the weights over training, as the weights of the model: WeightAveraging, EMAWeightAveraging and
// StochasticWeightAveraging.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/option_visitor.h>
#include <lockstep/train/hooks.h>

namespace lockstep {

namespace detail {
class AveragedWeights;
}

/// Updates `averages` with `weights`, in place, after `num_averaged` >= 1 earlier updates. Both have the same
/// shapes.
using MultiAverageFunction =
    std::function<void(at::TensorList averages, at::TensorList weights, std::int64_t num_averaged)>;

/// The plain mean of all: torch.optim.swa_utils.get_swa_multi_avg_fn.
LOCKSTEP_API MultiAverageFunction get_swa_multi_avg_fn();
/// decay * average + (1 - decay) * weight: torch.optim.swa_utils.get_ema_multi_avg_fn.
/// @throws ConfigError unless decay is in [0, 1]
LOCKSTEP_API MultiAverageFunction get_ema_multi_avg_fn(double decay = 0.999);

/// How weights are averaged.
struct WeightAveragingOptions {
  bool use_buffers = true;  ///< average floating-point buffers, too; false: take them as they are
  MultiAverageFunction multi_avg_fn = {};  ///< none: get_swa_multi_avg_fn()
};

/// All but `multi_avg_fn`.
LOCKSTEP_API void describe(OptionVisitor& visitor, WeightAveragingOptions& options);

/// Keeps averages of a model's weights while it is trained. The model holds them while it is validated in
/// fit, and when training has ended; checkpoints have them as the model's weights, and what training goes on
/// with beside them. Before the first update there is nothing to average, and the model holds its own
/// weights.
///
/// To choose the moments, derive and override should_update(). Every rank averages for itself: strategies
/// that shard the weights are refused. Lightning's WeightAveraging.
class LOCKSTEP_API WeightAveraging : public Callback {
 public:
  explicit WeightAveraging(WeightAveragingOptions options = {});
  ~WeightAveraging() override;

  /// Asked after every optimizer step, with its number from 0, and at the end of every training epoch, with
  /// that one's. The answer must be the same on all ranks.
  virtual bool should_update(std::optional<std::int64_t> step_idx,
                             std::optional<std::int64_t> epoch_idx) const;

  /// How many weights the averages are of, in this run.
  std::int64_t num_averaged() const;

  StateTree state() const override;
  void load_state(const StateTree& state) override;

  void setup(TrainContext& context) override;
  void on_train_start(TrainContext& context) override;
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override;
  void on_train_epoch_end(TrainContext& context) override;
  void on_train_end(TrainContext& context) override;
  void on_validation_epoch_start(TrainContext& context) override;
  void on_validation_batch_start(StepContext& step) override;
  void on_validation_epoch_end(TrainContext& context) override;
  void on_save_checkpoint(TrainContext& context, StateTree& shared) override;
  void on_load_checkpoint(TrainContext& context, const StateTree& shared) override;

 private:
  void update(const TrainContext& context);
  void hold_averages(const TrainContext& context, bool wanted);

  WeightAveragingOptions options_;
  std::unique_ptr<detail::AveragedWeights> weights_;  // from the first update on
  StateTree loaded_buffers_;                          // until on_load_checkpoint()
  std::int64_t steps_seen_ = 0;                       // optimizer steps done behind the last batch
  std::int64_t latest_update_step_ = 0;               // optimizer steps done then
  std::int64_t latest_update_epoch_ = -1;
};

/// Names, meaning and defaults are Lightning's.
struct EMAWeightAveragingOptions {
  bool use_buffers = true;                                    ///< averages buffers, too
  double decay = 0.999;                                       ///< in [0, 1]
  std::int64_t update_every_n_steps = 1;                      ///< optimizer steps; 0: not after steps
  std::optional<std::int64_t> update_starting_at_step = {};   ///< first step, from 0, that may update
  std::optional<std::int64_t> update_starting_at_epoch = {};  ///< from this epoch on, update at its end, too
};

LOCKSTEP_API void describe(OptionVisitor& visitor, EMAWeightAveragingOptions& options);

/// WeightAveraging with an exponential moving average. Lightning's EMAWeightAveraging.
class LOCKSTEP_API EMAWeightAveraging : public WeightAveraging {
 public:
  /// @throws ConfigError naming the option that is out of range
  explicit EMAWeightAveraging(EMAWeightAveragingOptions options = {});

  bool should_update(std::optional<std::int64_t> step_idx,
                     std::optional<std::int64_t> epoch_idx) const override;

 private:
  EMAWeightAveragingOptions options_;
};

/// Names, meaning and defaults are Lightning's.
struct StochasticWeightAveragingOptions {
  std::vector<double> swa_lrs = {};  ///< required, > 0; one for all parameter groups, or one for each
  /// The epoch from which weights are averaged, counted from 1; or a fraction of max_epochs.
  std::variant<std::int64_t, double> swa_epoch_start = 0.8;
  std::int64_t annealing_epochs = 10;      ///< in which learning rates go to swa_lrs; 0: at once
  std::string annealing_strategy = "cos";  ///< "cos" or "linear"
  MultiAverageFunction avg_fn = {};        ///< none: get_swa_multi_avg_fn()
};

/// All but `avg_fn`.
LOCKSTEP_API void describe(OptionVisitor& visitor, StochasticWeightAveragingOptions& options);

/// From swa_epoch_start on takes the weights into an average at the beginning of each epoch, under learning
/// rates of its own: the schedule that the module has configured ends there. When training ends the model
/// holds the average, and its BatchNorm layers are measured anew (TrainContext::update_bn); checkpoints then
/// have beside it what training goes on with.
///
/// For one optimizer; strategies that shard the weights are refused. Lightning's StochasticWeightAveraging;
/// Izmailov et al., Averaging Weights Leads to Wider Optima and Better Generalization: arXiv 1803.05407.
class LOCKSTEP_API StochasticWeightAveraging final : public Callback {
 public:
  /// @throws ConfigError naming the option that is out of range
  explicit StochasticWeightAveraging(StochasticWeightAveragingOptions options);
  ~StochasticWeightAveraging() override;

  /// How many weights the average is of.
  std::int64_t num_averaged() const;

  void setup(TrainContext& context) override;
  void on_train_epoch_start(TrainContext& context) override;
  void on_train_end(TrainContext& context) override;
  void on_save_checkpoint(TrainContext& context, StateTree& shared) override;
  void on_load_checkpoint(TrainContext& context, const StateTree& shared) override;

 private:
  void replace_schedule(TrainContext& context) const;

  StochasticWeightAveragingOptions options_;
  std::int64_t swa_start_ = 0;                        // number of the epoch, from 0
  std::unique_ptr<detail::AveragedWeights> weights_;  // from that epoch on
  std::int64_t latest_update_epoch_ = -1;
};

}  // namespace lockstep
