// A module and a callback that write down every hook they are called with.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/lockstep.h>

#include "support/temporary_folder.h"

namespace lockstep::testing {

using Rows = std::vector<std::string>;

inline std::string row(const char* who, const char* hook, const std::string& batch,
                       const TrainContext& context) {
  return std::string(who) + " " + hook + " " + batch + " " + std::to_string(context.current_epoch()) + " " +
         std::to_string(context.global_step());
}

// Every hook that module and callback share; `Base` is Callback or Module<Example>.
template <class Base>
class Recorder : public Base {
 public:
  Recorder(const char* who, Rows& rows) : who_(who), rows_(rows) {}

#define LOCKSTEP_RECORD(hook) \
  void hook(TrainContext& context) override { rows_.push_back(row(who_, #hook, "-", context)); }
#define LOCKSTEP_RECORD_STEP(hook) \
  void hook(StepContext& step) override { rows_.push_back(row(who_, #hook, "-", step)); }
#define LOCKSTEP_RECORD_BATCH(hook)                                            \
  void hook(StepContext& step) override {                                      \
    rows_.push_back(row(who_, #hook, std::to_string(step.batch_idx()), step)); \
  }
  LOCKSTEP_RECORD(setup)
  LOCKSTEP_RECORD(teardown)
  LOCKSTEP_RECORD(on_fit_start)
  LOCKSTEP_RECORD(on_fit_end)
  LOCKSTEP_RECORD(on_train_start)
  LOCKSTEP_RECORD(on_train_end)
  LOCKSTEP_RECORD(on_train_epoch_start)
  LOCKSTEP_RECORD(on_train_epoch_end)
  LOCKSTEP_RECORD_BATCH(on_train_batch_start)
  void on_train_batch_end(StepContext& step, const TrainOutput&) override {
    rows_.push_back(row(who_, "on_train_batch_end", std::to_string(step.batch_idx()), step));
  }
  LOCKSTEP_RECORD_STEP(on_before_zero_grad)
  void on_before_backward(StepContext& step, const at::Tensor&) override {
    rows_.push_back(row(who_, "on_before_backward", "-", step));
  }
  LOCKSTEP_RECORD_STEP(on_after_backward)
  LOCKSTEP_RECORD_STEP(on_before_optimizer_step)
  LOCKSTEP_RECORD(on_validation_start)
  LOCKSTEP_RECORD(on_validation_end)
  LOCKSTEP_RECORD(on_validation_epoch_start)
  LOCKSTEP_RECORD(on_validation_epoch_end)
  LOCKSTEP_RECORD_BATCH(on_validation_batch_start)
  LOCKSTEP_RECORD_BATCH(on_validation_batch_end)
  LOCKSTEP_RECORD(on_test_start)
  LOCKSTEP_RECORD(on_test_end)
  LOCKSTEP_RECORD(on_test_epoch_start)
  LOCKSTEP_RECORD(on_test_epoch_end)
  LOCKSTEP_RECORD_BATCH(on_test_batch_start)
  LOCKSTEP_RECORD_BATCH(on_test_batch_end)
  LOCKSTEP_RECORD(on_predict_start)
  LOCKSTEP_RECORD(on_predict_end)
  LOCKSTEP_RECORD(on_predict_epoch_start)
  LOCKSTEP_RECORD(on_predict_epoch_end)
  LOCKSTEP_RECORD_BATCH(on_predict_batch_start)
  void on_predict_batch_end(StepContext& step, const at::Tensor&) override {
    rows_.push_back(row(who_, "on_predict_batch_end", std::to_string(step.batch_idx()), step));
  }
  StateTree state() const override {
    rows_.push_back(std::string(who_) + " on_save_checkpoint");
    StateTree state;
    state.set("is_there", true);
    return state;
  }
  void load_state(const StateTree&) override { rows_.push_back(std::string(who_) + " on_load_checkpoint"); }

 protected:
  const char* who_;
  Rows& rows_;
};

struct RecordingCallback final : Recorder<Callback> {
  using Recorder::Recorder;
  // Lightning gives these two to callbacks only.
  LOCKSTEP_RECORD(on_sanity_check_start)
  LOCKSTEP_RECORD(on_sanity_check_end)
  void on_exception(TrainContext& context, const std::exception&) override {
    rows_.push_back(row(who_, "on_exception", "-", context));
  }
};

struct RecordingModuleImpl final : Recorder<Module<Example>> {
  explicit RecordingModuleImpl(Rows& rows) : Recorder("module", rows) { register_module("net", net); }

  std::vector<std::shared_ptr<Callback>> configure_callbacks() override {
    rows_.push_back("module configure_callbacks - 0 0");
    return {};
  }
  void prepare_data() override { rows_.push_back("module prepare_data - 0 0"); }
  LOCKSTEP_RECORD(configure_model)
#define LOCKSTEP_RECORD_TRANSFER(hook)                                            \
  std::optional<Example> hook(const Example& batch, StepContext& step) override { \
    rows_.push_back(row(who_, #hook, "-", step));                                 \
    return batch;                                                                 \
  }
  LOCKSTEP_RECORD_TRANSFER(on_before_batch_transfer)
  LOCKSTEP_RECORD_TRANSFER(transfer_batch_to_device)
  LOCKSTEP_RECORD_TRANSFER(on_after_batch_transfer)
#undef LOCKSTEP_RECORD_TRANSFER
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    rows_.push_back(row(who_, "training_step", std::to_string(step.batch_idx()), step));
    if (step.batch_idx() == fails_at) throw std::runtime_error("scripted");
    const auto loss = net->forward(batch.data).pow(2).mean();
    if (is_manual) step_once(step, loss);
    return loss;
  }
  LOCKSTEP_RECORD(on_validation_model_zero_grad)
  LOCKSTEP_RECORD(on_predict_model_eval)
  // Lightning leaves the model in evaluation mode after predict.
  void on_predict_model_train(TrainContext&) override {}
  LOCKSTEP_RECORD(on_validation_model_eval)
  LOCKSTEP_RECORD(on_validation_model_train)
  LOCKSTEP_RECORD(on_test_model_eval)
  LOCKSTEP_RECORD(on_test_model_train)
  void validation_step(const Example&, StepContext& step) override {
    rows_.push_back(row(who_, "validation_step", std::to_string(step.batch_idx()), step));
  }
  void test_step(const Example&, StepContext& step) override {
    rows_.push_back(row(who_, "test_step", std::to_string(step.batch_idx()), step));
  }
  torch::Tensor predict_step(const Example& batch, StepContext& step) override {
    rows_.push_back(row(who_, "predict_step", std::to_string(step.batch_idx()), step));
    return batch.data;
  }
  bool automatic_optimization() const override { return !is_manual; }
  Optimizers configure_optimizers() override {
    rows_.push_back("module configure_optimizers - 0 0");
    if (is_manual) return {.optimizer = SGD{.lr = 0.1}};
    return {.optimizer = SGD{.lr = 0.1}, .lr_scheduler = LRScheduler{.scheduler = StepLR{.step_size = 1}}};
  }
  void optimizer_zero_grad(StepContext& step) override {
    rows_.push_back(row(who_, "optimizer_zero_grad", "-", step));
    Module::optimizer_zero_grad(step);
  }
  void configure_gradient_clipping(StepContext& step, const GradientClip& clip) override {
    rows_.push_back(row(who_, "configure_gradient_clipping", "-", step));
    Module::configure_gradient_clipping(step, clip);
  }
  void lr_scheduler_step(TrainContext& context, Scheduler& scheduler, std::optional<double> metric) override {
    rows_.push_back(row(who_, "lr_scheduler_step", "-", context));
    Module::lr_scheduler_step(context, scheduler, metric);
  }

  torch::nn::Linear net{4, 1};
  std::int64_t fails_at = -1;
  bool is_manual = false;

 private:
  static void step_once(StepContext& step, const torch::Tensor& loss) {
    auto optimizer = step.manual_optimizer();
    optimizer.zero_grad();
    step.manual_backward(loss);
    optimizer.step();
  }
};
TORCH_MODULE(RecordingModule);
#undef LOCKSTEP_RECORD
#undef LOCKSTEP_RECORD_STEP
#undef LOCKSTEP_RECORD_BATCH

class Recording {
 public:
  TrainerOptions trainer_options() {
    TrainerOptions options{.enable_progress_bar = false};
    options.callbacks = {std::make_shared<RecordingCallback>("callback", rows_)};
    options.run.run_dir = folder_.path() / "run";
    return options;
  }
  RecordingModule module() { return RecordingModule(rows_); }
  Loader<Example> batches(std::int64_t count) {
    return loader(tensor_dataset(torch::ones({count * 2, 4})), {.batch_size = 2});
  }
  const Rows& rows() const { return rows_; }
  void clear() { rows_.clear(); }
  std::filesystem::path folder() const { return folder_.path(); }

 private:
  Rows rows_;
  test::TemporaryFolder folder_;
};

}  // namespace lockstep::testing
