// LambdaCallback: hooks as functions.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include <lockstep/train/hooks.h>

namespace lockstep {

/// The functions of a LambdaCallback; those not given do nothing.
struct LambdaHooks {
  /// A hook of the run.
  using Epoch = std::function<void(TrainContext&)>;
  /// A hook of a batch.
  using Batch = std::function<void(StepContext&)>;

  Epoch setup = {}, teardown = {}, on_fit_start = {}, on_fit_end = {};
  Epoch on_sanity_check_start = {}, on_sanity_check_end = {};
  Epoch on_train_start = {}, on_train_end = {}, on_train_epoch_start = {}, on_train_epoch_end = {};
  Batch on_train_batch_start = {};
  std::function<void(StepContext&, const TrainOutput&)> on_train_batch_end = {};
  Batch on_before_zero_grad = {}, on_after_backward = {}, on_before_optimizer_step = {};
  std::function<void(StepContext&, const at::Tensor&)> on_before_backward = {};
  Epoch on_validation_start = {}, on_validation_end = {};
  Epoch on_validation_epoch_start = {}, on_validation_epoch_end = {};
  Batch on_validation_batch_start = {}, on_validation_batch_end = {};
  Epoch on_test_start = {}, on_test_end = {}, on_test_epoch_start = {}, on_test_epoch_end = {};
  Batch on_test_batch_start = {}, on_test_batch_end = {};
  Epoch on_predict_start = {}, on_predict_end = {}, on_predict_epoch_start = {}, on_predict_epoch_end = {};
  Batch on_predict_batch_start = {};
  std::function<void(StepContext&, const at::Tensor& prediction)> on_predict_batch_end = {};
  std::function<void(TrainContext&, const std::exception&)> on_exception = {};
  /// The state that checkpoints store for it: Lightning's on_save_checkpoint and on_load_checkpoint.
  std::function<StateTree()> state = {};
  std::function<void(const StateTree&)> load_state = {};  ///< goes on from what `state` gave
  std::string state_key = {};                             ///< the key of that state; empty: the class name
};

/// A callback made of functions: `LambdaCallback({.on_train_epoch_end = [](ls::TrainContext& c) { ... }})`.
/// Lightning's LambdaCallback.
class LOCKSTEP_API LambdaCallback final : public Callback {
 public:
  explicit LambdaCallback(LambdaHooks hooks) : hooks_(std::move(hooks)) {}

  std::string state_key() const override {
    return hooks_.state_key.empty() ? Callback::state_key() : hooks_.state_key;
  }
  StateTree state() const override { return hooks_.state ? hooks_.state() : StateTree(); }
  void load_state(const StateTree& state) override { call(hooks_.load_state, state); }

  void setup(TrainContext& context) override { call(hooks_.setup, context); }
  void teardown(TrainContext& context) override { call(hooks_.teardown, context); }
  void on_fit_start(TrainContext& context) override { call(hooks_.on_fit_start, context); }
  void on_fit_end(TrainContext& context) override { call(hooks_.on_fit_end, context); }
  void on_sanity_check_start(TrainContext& context) override { call(hooks_.on_sanity_check_start, context); }
  void on_sanity_check_end(TrainContext& context) override { call(hooks_.on_sanity_check_end, context); }
  void on_train_start(TrainContext& context) override { call(hooks_.on_train_start, context); }
  void on_train_end(TrainContext& context) override { call(hooks_.on_train_end, context); }
  void on_train_epoch_start(TrainContext& context) override { call(hooks_.on_train_epoch_start, context); }
  void on_train_epoch_end(TrainContext& context) override { call(hooks_.on_train_epoch_end, context); }
  void on_train_batch_start(StepContext& step) override { call(hooks_.on_train_batch_start, step); }
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override {
    call(hooks_.on_train_batch_end, step, output);
  }
  void on_before_zero_grad(StepContext& step) override { call(hooks_.on_before_zero_grad, step); }
  void on_before_backward(StepContext& step, const at::Tensor& loss) override {
    call(hooks_.on_before_backward, step, loss);
  }
  void on_after_backward(StepContext& step) override { call(hooks_.on_after_backward, step); }
  void on_before_optimizer_step(StepContext& step) override { call(hooks_.on_before_optimizer_step, step); }
  void on_validation_start(TrainContext& context) override { call(hooks_.on_validation_start, context); }
  void on_validation_end(TrainContext& context) override { call(hooks_.on_validation_end, context); }
  void on_validation_epoch_start(TrainContext& context) override {
    call(hooks_.on_validation_epoch_start, context);
  }
  void on_validation_epoch_end(TrainContext& context) override {
    call(hooks_.on_validation_epoch_end, context);
  }
  void on_validation_batch_start(StepContext& step) override { call(hooks_.on_validation_batch_start, step); }
  void on_validation_batch_end(StepContext& step) override { call(hooks_.on_validation_batch_end, step); }
  void on_test_start(TrainContext& context) override { call(hooks_.on_test_start, context); }
  void on_test_end(TrainContext& context) override { call(hooks_.on_test_end, context); }
  void on_test_epoch_start(TrainContext& context) override { call(hooks_.on_test_epoch_start, context); }
  void on_test_epoch_end(TrainContext& context) override { call(hooks_.on_test_epoch_end, context); }
  void on_test_batch_start(StepContext& step) override { call(hooks_.on_test_batch_start, step); }
  void on_test_batch_end(StepContext& step) override { call(hooks_.on_test_batch_end, step); }
  void on_predict_start(TrainContext& context) override { call(hooks_.on_predict_start, context); }
  void on_predict_end(TrainContext& context) override { call(hooks_.on_predict_end, context); }
  void on_predict_epoch_start(TrainContext& context) override {
    call(hooks_.on_predict_epoch_start, context);
  }
  void on_predict_epoch_end(TrainContext& context) override { call(hooks_.on_predict_epoch_end, context); }
  void on_predict_batch_start(StepContext& step) override { call(hooks_.on_predict_batch_start, step); }
  void on_predict_batch_end(StepContext& step, const at::Tensor& prediction) override {
    call(hooks_.on_predict_batch_end, step, prediction);
  }
  void on_exception(TrainContext& context, const std::exception& error) override {
    call(hooks_.on_exception, context, error);
  }

 private:
  template <class Function, class... Arguments>
  static void call(const Function& function, Arguments&... arguments) {
    if (function) function(arguments...);
  }

  LambdaHooks hooks_;
};

}  // namespace lockstep
