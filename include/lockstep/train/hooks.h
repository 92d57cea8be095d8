// The hooks that modules and callbacks share. Order and meaning are Lightning's; of one hook the
// callbacks run first, in the order they were given, then the module.
#pragma once

#include <exception>
#include <string>

#include <lockstep/base/export.h>
#include <lockstep/state/state_tree.h>
#include <lockstep/train/train_context.h>

namespace lockstep {

/// What happened in one training batch.
struct TrainOutput {
  /// The loss as training_step gave it; not a number where it gave none. Whoever reads one that is on a
  /// device waits for the device.
  Scalar loss = 0;
};

/// Every hook does nothing by default; override what you need.
class LOCKSTEP_API Hooks {
 public:
  virtual ~Hooks();

  /// fit, validate, test or predict begins.
  virtual void setup(TrainContext&) {}
  /// fit, validate, test or predict ends.
  virtual void teardown(TrainContext&) {}
  /// fit begins.
  virtual void on_fit_start(TrainContext&) {}
  /// fit ends.
  virtual void on_fit_end(TrainContext&) {}
  /// The short validation before the first epoch begins.
  virtual void on_sanity_check_start(TrainContext&) {}
  /// The short validation before the first epoch ends.
  virtual void on_sanity_check_end(TrainContext&) {}

  /// The first epoch is about to begin.
  virtual void on_train_start(TrainContext&) {}
  /// The last epoch has ended.
  virtual void on_train_end(TrainContext&) {}
  /// An epoch begins.
  virtual void on_train_epoch_start(TrainContext&) {}
  /// All batches of an epoch are done.
  virtual void on_train_epoch_end(TrainContext&) {}
  /// A micro-batch is on the device, and about to be used.
  virtual void on_train_batch_start(StepContext&) {}
  /// A micro-batch is done, with the optimizer step where one followed.
  virtual void on_train_batch_end(StepContext&, const TrainOutput&) {}

  /// Gradients are about to be forgotten.
  virtual void on_before_zero_grad(StepContext&) {}
  /// `loss` is what backward begins with.
  virtual void on_before_backward(StepContext&, const at::Tensor& /*loss*/) {}
  /// backward of a micro-batch is done.
  virtual void on_after_backward(StepContext&) {}
  /// Gradients are complete (accumulated, averaged over ranks) and not clipped yet.
  virtual void on_before_optimizer_step(StepContext&) {}

  /// A validation begins.
  virtual void on_validation_start(TrainContext&) {}
  /// A validation ends.
  virtual void on_validation_end(TrainContext&) {}
  /// The batches of a validation are about to come.
  virtual void on_validation_epoch_start(TrainContext&) {}
  /// All batches of a validation are done.
  virtual void on_validation_epoch_end(TrainContext&) {}
  /// A batch of a validation is on the device, and about to be used.
  virtual void on_validation_batch_start(StepContext&) {}
  /// A batch of a validation is done.
  virtual void on_validation_batch_end(StepContext&) {}

  /// A test begins.
  virtual void on_test_start(TrainContext&) {}
  /// A test ends.
  virtual void on_test_end(TrainContext&) {}
  /// The batches of a test are about to come.
  virtual void on_test_epoch_start(TrainContext&) {}
  /// All batches of a test are done.
  virtual void on_test_epoch_end(TrainContext&) {}
  /// A batch of a test is on the device, and about to be used.
  virtual void on_test_batch_start(StepContext&) {}
  /// A batch of a test is done.
  virtual void on_test_batch_end(StepContext&) {}

  /// A prediction begins.
  virtual void on_predict_start(TrainContext&) {}
  /// A prediction ends.
  virtual void on_predict_end(TrainContext&) {}
  /// The batches of a prediction are about to come.
  virtual void on_predict_epoch_start(TrainContext&) {}
  /// All batches of a prediction are done.
  virtual void on_predict_epoch_end(TrainContext&) {}
  /// A batch of a prediction is on the device, and about to be used.
  virtual void on_predict_batch_start(StepContext&) {}
  /// `prediction` is what predict_step gave.
  virtual void on_predict_batch_end(StepContext&, const at::Tensor& /*prediction*/) {}

  /// The run is about to fail with `error`. Not Collective: other ranks may be well.
  virtual void on_exception(TrainContext&, const std::exception& /*error*/) {}
};

/// When a callback is called, among others.
enum class CallbackPlace {
  kOrdinary,   ///< in the order in which callbacks were given
  kTuner,      ///< before all other callbacks
  kMonitor,    ///< at the end of a training epoch after the module, whose metrics it looks at
  kCheckpoint  ///< the same, and elsewhere behind all other callbacks
};

/// A part of a run that is neither model nor data: give it to TrainerOptions::callbacks.
class LOCKSTEP_API Callback : public Hooks {
 public:
  ~Callback() override;

  /// When it is called, among other callbacks.
  virtual CallbackPlace place() const { return CallbackPlace::kOrdinary; }

  /// What its state is kept under: the name of its class. Callbacks of one class are told apart by their
  /// order.
  virtual std::string state_key() const;
  /// What it must remember to go on in another process, this rank's part of it. Not Collective.
  virtual StateTree state() const { return {}; }
  /// Goes on from `state`, which state() gave. Also in validate, test and predict with a checkpoint, unless
  /// this Trainer has trained itself. Not Collective. @throws CheckpointError when it does not fit
  virtual void load_state(const StateTree& /*state*/) {}

  /// A checkpoint is being taken. `shared` is what it holds of all ranks together, of which rank 0's is
  /// written: `model`, `hyper_parameters` and, unless it is of the weights alone, `optimizer`,
  /// `lr_scheduler`, `loops` and `data`. Add to it, or put something else in its place. Not Collective.
  virtual void on_save_checkpoint(TrainContext&, StateTree& /*shared*/) {}
  /// A run of fit goes on from a checkpoint that holds `shared`, on all ranks. Weights and the states of
  /// callbacks are loaded; optimizer and schedule come next: make them here what the saved ones were.
  virtual void on_load_checkpoint(TrainContext&, const StateTree& /*shared*/) {}
};

}  // namespace lockstep
