// Module<Batch>: a torch::nn::Module that knows how to train itself.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/data/loader.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/optim/scheduler.h>
#include <lockstep/parallel/autograd.h>
#include <lockstep/state/state_tree.h>
#include <lockstep/torch.h>
#include <lockstep/train/batch_transfer.h>
#include <lockstep/train/hooks.h>
#include <lockstep/train/run_optimizer.h>

namespace lockstep {

/// The part of Module that does not depend on the type of the batch; the loops see only this.
class LOCKSTEP_API AnyModule : public torch::nn::Module, public Hooks, public AnyBatchTransfer {
 public:
  ~AnyModule() override;

  /// Optimizer and learning-rate schedule, asked for once, at the start of fit. None unless overridden: then
  /// the strategy's configuration must have one (DeepSpeed's JSON), or training_step needs none.
  virtual Optimizers configure_optimizers();

  /// Whether the Trainer runs backward and steps the optimizer. When false, training_step does, by
  /// manual_backward() and manual_optimizer(), what it returns is not looked at but for its value, and
  /// nothing is accumulated, clipped or scheduled for it.
  virtual bool automatic_optimization() const { return true; }

  /// Callbacks that this model wants in every run of it; one of the Trainer's of the same class gives way.
  /// Asked for at the start of each run.
  virtual std::vector<std::shared_ptr<Callback>> configure_callbacks() { return {}; }

  /// Called after setup() and before any weights are loaded: make here what the data or the strategy decide.
  virtual void configure_model(TrainContext& /*context*/) {}

  /// Whether a checkpoint or file of weights must have exactly this module's tensors. When false, names that
  /// only one side has are said in a warning. Lightning's `strict_loading`.
  virtual bool strict_loading() const { return true; }

  /// What checkpoints keep of this rank's module beside parameters and buffers, such as counters of its own;
  /// given back when a run goes on, and to the model that is validated, tested or asked for predictions with
  /// a checkpoint. Lightning's on_save_checkpoint and on_load_checkpoint.
  virtual StateTree state() const { return {}; }
  /// Goes on from `state`, which state() gave. Not Collective.
  virtual void load_state(const StateTree& /*state*/) {}

  /// Called on local rank 0 of every node, before setup(), while the others wait: fetch data here.
  virtual void prepare_data() {}

  /// Resets the gradients, at the first micro-batch of every accumulation window.
  virtual void optimizer_zero_grad(StepContext& step);

  /// Clips the gradients before each optimizer step, by the Trainer's gradient_clip_* options.
  virtual void configure_gradient_clipping(StepContext& step, const GradientClip& clip);

  /// Advances the schedule; called as its interval and frequency say. `metric` is the value of
  /// LRScheduler::monitor where the schedule watches one.
  virtual void lr_scheduler_step(TrainContext& context, Scheduler& scheduler, std::optional<double> metric);

  /// Before each validation within fit, unless gradients are being accumulated: the default frees them.
  virtual void on_validation_model_zero_grad(TrainContext& context);
  /// Switch to evaluation and back; the default restores every submodule's own flag.
  virtual void on_validation_model_eval(TrainContext& context);
  /// Puts the module back into the modes it had before validation.
  virtual void on_validation_model_train(TrainContext& context);
  /// Puts the module into evaluation mode before tests.
  virtual void on_test_model_eval(TrainContext& context) { on_validation_model_eval(context); }
  /// Puts the module back into the modes it had before tests.
  virtual void on_test_model_train(TrainContext& context) { on_validation_model_train(context); }
  /// Puts the module into evaluation mode before prediction.
  virtual void on_predict_model_eval(TrainContext& context) { on_validation_model_eval(context); }
  /// Puts the module back into the modes it had before prediction.
  virtual void on_predict_model_train(TrainContext& context) { on_validation_model_train(context); }

  // Bridges to the typed steps of Module<Batch>.
  /// Calls training_step for a batch of the module's type.
  virtual at::Tensor any_training_step(const AnyBatch& batch, StepContext& step) = 0;
  /// Calls validation_step for a batch of the module's type.
  virtual void any_validation_step(const AnyBatch& batch, StepContext& step) = 0;
  /// Calls test_step for a batch of the module's type.
  virtual void any_test_step(const AnyBatch& batch, StepContext& step) = 0;
  /// Calls predict_step for a batch of the module's type.
  virtual at::Tensor any_predict_step(const AnyBatch& batch, StepContext& step) = 0;

 protected:
  /// What the steps do unless they are overridden. @throws ConfigError naming the step
  [[noreturn]] static void refuse_missing(const char* step);

 private:
  std::vector<std::pair<torch::nn::Module*, bool>> training_flags_;
};

/// Derive your model from Module<Batch>, override training_step and configure_optimizers, and
/// hand it to a Trainer: Lightning's LightningModule.
template <class Batch>
class Module : public BatchTransfer<Batch, AnyModule> {
 public:
  /// The loss of one micro-batch: a tensor of one element that backward() can start from; in manual
  /// optimisation anything. In a world of one it may be undefined: then the batch adds nothing to the
  /// gradients.
  virtual at::Tensor training_step(const Batch& /*batch*/, StepContext& /*step*/) {
    AnyModule::refuse_missing("training_step");
  }
  /// One batch of validation, in evaluation mode and without gradients; log what you measure.
  virtual void validation_step(const Batch& /*batch*/, StepContext& /*step*/) {
    AnyModule::refuse_missing("validation_step");
  }
  /// One batch of test, as validation_step.
  virtual void test_step(const Batch& /*batch*/, StepContext& /*step*/) {
    AnyModule::refuse_missing("test_step");
  }
  /// What the model says of one batch, in evaluation mode and without gradients.
  virtual at::Tensor predict_step(const Batch& /*batch*/, StepContext& /*step*/) {
    AnyModule::refuse_missing("predict_step");
  }

  at::Tensor any_training_step(const AnyBatch& batch, StepContext& step) final {
    return training_step(batch.get<Batch>(), step);
  }
  void any_validation_step(const AnyBatch& batch, StepContext& step) final {
    validation_step(batch.get<Batch>(), step);
  }
  void any_test_step(const AnyBatch& batch, StepContext& step) final { test_step(batch.get<Batch>(), step); }
  at::Tensor any_predict_step(const AnyBatch& batch, StepContext& step) final {
    return predict_step(batch.get<Batch>(), step);
  }
};

}  // namespace lockstep
