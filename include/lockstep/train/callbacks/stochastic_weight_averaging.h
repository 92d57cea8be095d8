// StochasticWeightAveraging: the mean of the weights of the last epochs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <lockstep/train/callbacks/weight_averaging.h>

namespace lockstep {

/// Names, meaning and defaults are Lightning's.
struct StochasticWeightAveragingOptions {
  std::vector<double> swa_lrs = {};  ///< required, > 0; one for all parameter groups, or one for each
  /// The epoch from which weights are averaged, counted from 1; or a fraction of max_epochs.
  std::variant<std::int64_t, double> swa_epoch_start = 0.8;
  std::int64_t annealing_epochs = 10;      ///< in which learning rates go to swa_lrs; 0: at once
  std::string annealing_strategy = "cos";  ///< "cos" or "linear"
  MultiAverageFunction avg_fn = {};        ///< none: get_swa_multi_avg_fn()
};

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
