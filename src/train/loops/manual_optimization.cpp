// Manual optimisation: training_step steps the optimizers itself.
#include "train/loops/batch_step.h"

#include <unordered_set>

#include <ATen/autocast_mode.h>

#include <lockstep/base/error.h>
#include <lockstep/device/torch_device.h>
#include <lockstep/train/run_optimizer.h>

#include "base/failure_place.h"
#include "strategy/scaled_step.h"

namespace lockstep {
namespace {

// training_step runs under autocast, and backward passes within it must not.
class AutocastPause {
 public:
  AutocastPause() : type_(device_in_use().type()), was_enabled_(at::autocast::is_autocast_enabled(type_)) {
    at::autocast::set_autocast_enabled(type_, false);
  }
  ~AutocastPause() { at::autocast::set_autocast_enabled(type_, was_enabled_); }
  AutocastPause(const AutocastPause&) = delete;
  AutocastPause& operator=(const AutocastPause&) = delete;

 private:
  c10::DeviceType type_;
  bool was_enabled_;
};

void require_manual(const detail::RunSetup& setup, const char* call) {
  if (!setup.module->automatic_optimization() && !setup.trained.empty()) return;
  throw ConfigError("train",
                    {.what = std::string(call) + " is for manual optimisation",
                     .expected = "a training_step of a module whose automatic_optimization() is false",
                     .got = setup.trained.empty() ? "stage " + std::string(stage_name(setup.stage))
                                                  : "automatic optimisation",
                     .hint = "override bool automatic_optimization() const { return false; }"});
}

std::unordered_set<const at::TensorImpl*> parameters_of(const detail::RunSetup& setup,
                                                        const RunOptimizer& optimizer) {
  std::unordered_set<const at::TensorImpl*> all;
  for (const auto& parameter : setup.strategy->trained_parameters(*optimizer.optimizer))
    all.insert(parameter.unsafeGetTensorImpl());
  return all;
}

}  // namespace

ManualOptimizer StepContext::manual_optimizer(std::size_t index) {
  require_manual(state_->setup, "manual_optimizer()");
  if (index < state_->setup.optimizers.size()) return {*state_, *this, state_->setup.optimizers[index]};
  throw ConfigError("train", {.what = "manual_optimizer(" + std::to_string(index) + ")",
                              .expected = "a number below that of the optimizers of configure_optimizers, " +
                                          std::to_string(state_->setup.optimizers.size())});
}

void StepContext::manual_backward(const at::Tensor& loss) { manual_backward(loss, {}); }

void StepContext::manual_backward(const at::Tensor& loss, const BackwardOptions& options) {
  require_manual(state_->setup, "manual_backward()");
  detail::check_loss(loss, options);
  const AutocastPause pause;
  const auto scaled = detail::scaled_loss(*state_->setup.precision, loss);
  state_->hooks.call(detail::hook::on_before_backward, *this, scaled);
  state_->setup.trained.backward(*state_->setup.strategy, scaled, options);
  state_->hooks.call(detail::hook::on_after_backward, *this);
}

// Autocast's cached casts of weights are stale after a step.
Scalar ManualOptimizer::step() {
  const AutocastPause pause;
  detail::unscale_gradients(*state_->setup.strategy, *state_->setup.precision, optimizer());
  prepare_step();
  const auto taken = detail::step_optimizer(*state_->setup.strategy, *state_->setup.precision, optimizer());
  at::autocast::clear_cache();
  state_->progress.count_optimizer_step();
  return taken;
}

double ManualOptimizer::step(const std::function<at::Tensor()>& closure) {
  const auto evaluate = [&] {
    at::autocast::clear_cache();
    const auto loss = closure();
    if (!loss.defined() || loss.numel() != 1) detail::check_loss(at::Tensor());
    prepare_step();
    return state_->setup.mean_over_ranks(loss.item<double>());
  };
  const double loss =
      detail::step_optimizer_with(*state_->setup.strategy, *state_->setup.precision, optimizer(), evaluate);
  at::autocast::clear_cache();
  state_->progress.count_optimizer_step();
  return loss;
}

void ManualOptimizer::prepare_step() {
  StepContext step = *step_;
  step.stepping_ = &optimizer();
  state_->hooks.call(detail::hook::on_before_optimizer_step, step);
  if (state_->setup.options.gradient_clip_val)
    clip_gradients({.value = *state_->setup.options.gradient_clip_val});
}

void ManualOptimizer::zero_grad(bool set_to_none) {
  detail::zero_grad(*state_->setup.precision, optimizer(), set_to_none);
}

Scalar ManualOptimizer::clip_gradients(const GradientClip& clip) {
  if (clip.value <= 0) return 0;
  const AutocastPause pause;
  return detail::clip_gradients(*state_->setup.strategy, *state_->setup.precision, optimizer(), clip);
}

ToggledOptimizer ManualOptimizer::toggled(const ToggleOptions& options) {
  return {*state_, *optimizer_, options};
}

Scheduler& ManualOptimizer::lr_scheduler() const {
  if (optimizer_->scheduler) return *optimizer_->scheduler;
  throw ConfigError("train", {.what = "lr_scheduler() of an optimizer without one",
                              .expected = "an lr_scheduler beside the optimizer in configure_optimizers",
                              .got = "none"});
}

ToggledOptimizer::ToggledOptimizer(detail::TrainerState& state, const RunOptimizer& toggled,
                                   const ToggleOptions& options)
    : local_(options.sync_grad ? nullptr : state.setup.trained.find(*toggled.module)) {
  if (local_) ++local_->local_scopes;
  const auto own = parameters_of(state.setup, toggled);
  for (const auto& other : state.setup.optimizers) {
    for (auto& parameter : state.setup.strategy->trained_parameters(*other.optimizer)) {
      if (!parameter.requires_grad() || own.contains(parameter.unsafeGetTensorImpl())) continue;
      frozen_.push_back(parameter);
      parameter.set_requires_grad(false);
    }
  }
  at::autocast::clear_cache();
}

ToggledOptimizer::~ToggledOptimizer() {
  for (auto& parameter : frozen_) parameter.set_requires_grad(true);
  if (local_) --local_->local_scopes;
  at::autocast::clear_cache();
}

namespace detail {

Scalar run_manual_step(const RunSetup& setup, const StepMeasure& measure, const AnyBatch& batch,
                       StepContext& step) {
  const auto scope = setup.precision->forward_scope();
  const auto measured = measure.step();
  const auto output = in_place("training_step", [&] { return setup.module->any_training_step(batch, step); });
  adapt_scale(*setup.precision);  // a checkpoint behind this batch has the scale of the next one
  return output.defined() && output.numel() == 1 ? LogValue(output).value() : Scalar();
}

}  // namespace detail
}  // namespace lockstep
