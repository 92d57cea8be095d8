#include <lockstep/train/module.h>

#include <lockstep/base/error.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/train/run_optimizer.h>

namespace lockstep {

AnyBatchTransfer::~AnyBatchTransfer() = default;
AnyModule::~AnyModule() = default;

Optimizers AnyModule::configure_optimizers() { return {}; }

void AnyModule::optimizer_zero_grad(StepContext& step) { step.optimizer().zero_grad(); }

void AnyModule::configure_gradient_clipping(StepContext& step, const GradientClip& clip) {
  if (clip.value > 0) step.strategy().clip_gradients_lazily(step.optimizer(), clip);
}

void AnyModule::lr_scheduler_step(TrainContext&, Scheduler& scheduler, std::optional<double> metric) {
  if (metric) {
    scheduler.step(*metric);
  } else {
    scheduler.step();
  }
}

void AnyModule::on_validation_model_zero_grad(TrainContext& context) {
  for (const auto& trained : context.optimizers()) trained.optimizer->zero_grad();
}

void AnyModule::on_validation_model_eval(TrainContext&) {
  training_flags_.clear();
  for (const auto& module : modules()) training_flags_.emplace_back(module.get(), module->is_training());
  eval();
}

void AnyModule::on_validation_model_train(TrainContext&) {
  // Parents come before their children, so a child's own flag is set last and stays.
  for (const auto& [module, training] : training_flags_) module->train(training);
  training_flags_.clear();
}

void AnyModule::refuse_missing(const char* step) {
  throw ConfigError("train", {.what = "the module does not override " + std::string(step),
                              .expected = "a " + std::string(step) + " for what the Trainer was asked to do",
                              .got = "none",
                              .where = "",
                              .hint = ""});
}

}  // namespace lockstep
