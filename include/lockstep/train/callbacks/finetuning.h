// BaseFinetuning and BackboneFinetuning: parts of a model that train later than the rest.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include <lockstep/base/option_visitor.h>
#include <lockstep/train/hooks.h>
#include <lockstep/train/module.h>

namespace lockstep {

/// How a part of a model begins to train.
struct UnfreezeOptions {
  std::optional<double> lr = {};   ///< of its parameter group; none: the first group's over initial_denom_lr
  double initial_denom_lr = 10.0;  ///< > 0
  bool train_bn = true;            ///< its BatchNorm layers, too
};

/// Freezes parts of a model before training and lets them train from some epoch on, in parameter groups of
/// their own: derive and override the two functions. A run that goes on from a checkpoint has the parts and
/// groups of that moment. The strategy is told when what is trained has changed, so that ranks exchange the
/// gradients of just that.
///
/// For one optimizer; strategies that shard the model are refused. All ranks must freeze and unfreeze the
/// same at the same time. Lightning's BaseFinetuning.
class LOCKSTEP_API BaseFinetuning : public Callback {
 public:
  /// Freeze here, by freeze(), what shall not train from the start. Called before the module is asked for its
  /// optimizer, which gets the parameters that are left.
  virtual void freeze_before_training(AnyModule& module) = 0;
  /// Called at the start of every training epoch: unfreeze here, on all ranks the same.
  virtual void finetune_function(TrainContext& context) = 0;

  void setup(TrainContext& context) override;
  void teardown(TrainContext& context) override;
  void on_train_epoch_start(TrainContext& context) override;
  void on_save_checkpoint(TrainContext& context, StateTree& shared) override;
  void on_load_checkpoint(TrainContext& context, const StateTree& shared) override;

 protected:
  /// No parameter of `part` requires a gradient from now on, and its BatchNorm layers no longer update what
  /// they have measured. With `train_bn` BatchNorm layers are left as they are.
  void freeze(torch::nn::Module& part, bool train_bn = true);
  /// Undoes freeze(); without `train_bn` the parameters of BatchNorm layers stay as they are.
  void make_trainable(torch::nn::Module& part, bool train_bn = true);
  /// Makes `part`, which is one of the module, trainable and gives the optimizer those of its parameters that
  /// it has not yet, as a group of their own; returns whether there were any.
  /// @throws ConfigError for an initial_denom_lr of 0 or less
  bool unfreeze_and_add_param_group(TrainContext& context, torch::nn::Module& part,
                                    const UnfreezeOptions& options = {});

 private:
  void freeze_statistics(torch::nn::Module& part);
  void release_statistics(torch::nn::Module& part);

  // Of BatchNorm layers whose statistics are frozen.
  std::map<torch::nn::Module*, std::optional<double>> momenta_;
};

/// Names, meaning and defaults are Lightning's, but for `backbone`.
struct BackboneFinetuningOptions {
  std::int64_t unfreeze_backbone_at_epoch = 10;  ///< from this epoch on the backbone trains, too
  /// What the backbone's learning rate is multiplied by at the start of an epoch; given the next epoch's
  /// number.
  std::function<double(std::int64_t)> lambda_func = [](std::int64_t) { return 2.0; };
  double backbone_initial_ratio_lr = 0.1;          ///< of the first group's learning rate, at first
  std::optional<double> backbone_initial_lr = {};  ///< in place of that
  bool should_align = true;                        ///< never above the first group's learning rate
  bool train_bn = true;  ///< train the backbone's BatchNorm layers, once it is unfrozen
  bool verbose = false;  ///< say the learning rates
  int rounding = 12;     ///< digits behind the point of what is said
  /// The part to freeze; none: the module that is registered as "backbone".
  std::function<torch::nn::Module&(AnyModule&)> backbone = {};
};

/// All but `lambda_func` and `backbone`.
LOCKSTEP_API void describe(OptionVisitor& visitor, BackboneFinetuningOptions& options);

/// Trains all but a backbone at first; from an epoch on the backbone as well, under a learning rate that
/// grows to that of the rest. As in Lightning, the backbone's BatchNorm layers train from the start.
/// Lightning's BackboneFinetuning.
class LOCKSTEP_API BackboneFinetuning final : public BaseFinetuning {
 public:
  /// @throws ConfigError naming the option that is out of range
  explicit BackboneFinetuning(BackboneFinetuningOptions options = {});

  /// @throws ConfigError where the module has no backbone
  void freeze_before_training(AnyModule& module) override;
  void finetune_function(TrainContext& context) override;

  StateTree state() const override;
  void load_state(const StateTree& state) override;

 private:
  torch::nn::Module& backbone_of(AnyModule& module) const;
  void say_rates(const TrainContext& context, double lr, double backbone_lr) const;

  BackboneFinetuningOptions options_;
  std::optional<double> previous_backbone_lr_;  // once it has a group
};

}  // namespace lockstep
