#include "train/automatic_optimization.h"

#include <cmath>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

#include "strategy/scaled_step.h"
#include "train/no_loss.h"

namespace lockstep::detail {
namespace {

void require_usable(const at::Tensor& loss, const StepContext& step) {
  const bool usable = loss.defined() && loss.numel() == 1 && loss.requires_grad();
  if (usable) return;
  const auto got = !loss.defined()     ? std::string("an undefined tensor")
                   : loss.numel() != 1 ? std::to_string(loss.numel()) + " elements"
                                       : std::string("a tensor that no parameter had a part in");
  throw ConfigError("train", {.what = "training_step gave no loss that backward() can start from",
                              .expected = "a tensor of one element that requires a gradient",
                              .got = got,
                              .where = place_of(step)});
}

void require_finite(double loss, const StepContext& step) {
  if (std::isfinite(loss)) return;
  throw Error("train", {.what = "detect_anomaly: the loss is not finite",
                        .expected = "a finite number",
                        .got = OptionType<double>::print(loss),
                        .where = place_of(step) + ", step " + std::to_string(step.global_step()),
                        .hint = "look at this batch's data and at the learning rate"});
}

}  // namespace

double AutomaticOptimization::run(const AnyBatch& batch, const Window& window, StepContext& step) {
  if (optimizer().needs_closure() && !batch.empty()) return run_closures(batch, step);
  const auto loss = batch.empty() ? at::Tensor() : training_step(batch, step);
  const char* const what = batch.empty() ? "the loader gave no batch" : "training_step gave no loss";
  const double value = loss.defined() ? checked_value(loss, step) : leave_out_loss(state_, what, step);
  if (window.first) open_window(step);
  has_batch_ = (has_batch_ && !window.first) || !batch.empty();
  has_loss_ = (has_loss_ && !window.first) || loss.defined();
  if (loss.defined()) backward(loss, window, step);
  if (window.last && has_batch_) optimizer_step(step);
  return value;
}

// Their losses were divided by what the window waited for. Gradients that are exchanged once in a window have
// not been: a loss that adds nothing to them has that done.
void AutomaticOptimization::close_window(const OpenWindow& window, StepContext& step) {
  auto& module = *state_.optimizers.front().module;
  const auto share = static_cast<double>(window.length) / static_cast<double>(window.done);
  for (const auto& [name, parameter] : state_.strategy->accumulating_parameters(module)) {
    const torch::NoGradGuard no_grad;
    if (parameter.grad().defined()) parameter.mutable_grad().mul_(share);
  }
  if (!state_.strategy->averages_every_backward()) {
    auto loss = torch::zeros({});
    for (const auto& parameter : module.parameters())
      if (parameter.requires_grad() && parameter.grad().defined()) loss = loss + parameter.sum() * 0;
    torch::nn::Module* const synced = &module;
    if (loss.requires_grad()) state_.strategy->backward(loss, {&synced, 1U});
  }
  if (has_batch_) optimizer_step(step);
}

void AutomaticOptimization::optimizer_step(StepContext& step) {
  if (!has_loss_ && state_.precision->grad_scaler() != nullptr) return skip_scaled_step(step);
  unscale_gradients(*state_.strategy, *state_.precision, optimizer());
  clip_gradients(step);
  {
    const auto measured = measure_.optimizer_step();
    has_left_out_step_ = !step_optimizer(*state_.strategy, *state_.precision, optimizer());
  }
  adapt_scale(*state_.precision);
  state_.count_optimizer_step();
}

// Lightning's: a scaler has nothing to unscale, and learns nothing, where no backward has run.
void AutomaticOptimization::skip_scaled_step(StepContext& step) {
  state_.hooks.call(hook::on_before_optimizer_step, step);
  state_.count_optimizer_step();
}

// Of ranks with other data the losses differ; what an optimizer makes of them must not.
double AutomaticOptimization::run_closures(const AnyBatch& batch, StepContext& step) {
  std::optional<double> first;
  const auto measured = measure_.optimizer_step();
  step_optimizer_with(*state_.strategy, *state_.precision, optimizer(), [&] {
    const auto loss = training_step(batch, step);
    const double value = checked_value(loss, step);
    if (!first) first = value;
    open_window(step);
    backward(loss, {}, step);
    clip_gradients(step);
    return state_.mean_over_ranks(value);
  });
  state_.count_optimizer_step();
  return first.value();
}

at::Tensor AutomaticOptimization::training_step(const AnyBatch& batch, StepContext& step) {
  const auto scope = state_.precision->forward_scope();
  const auto measured = measure_.step();
  return state_.module->any_training_step(batch, step);
}

double AutomaticOptimization::checked_value(const at::Tensor& loss, const StepContext& step) const {
  require_usable(loss, step);
  const double value = LogValue(loss).value();
  if (state_.options.detect_anomaly) require_finite(value, step);
  return value;
}

void AutomaticOptimization::open_window(StepContext& step) {
  state_.hooks.call(hook::on_before_zero_grad, step);
  state_.module->optimizer_zero_grad(step);
}

void AutomaticOptimization::backward(at::Tensor loss, const Window& window, StepContext& step) {
  if (window.divisor != 1) loss = loss / window.divisor;
  loss = scaled_loss(*state_.precision, loss);
  state_.hooks.call(hook::on_before_backward, step, loss);
  torch::nn::Module* const module = state_.optimizers.front().module.get();
  {
    const auto measured = measure_.backward();
    const bool averages = window.last || state_.strategy->averages_every_backward();
    state_.strategy->backward(loss, {&module, averages ? 1U : 0U});
  }
  state_.hooks.call(hook::on_after_backward, step);
}

void AutomaticOptimization::clip_gradients(StepContext& step) {
  state_.hooks.call(hook::on_before_optimizer_step, step);
  state_.module->configure_gradient_clipping(step, {.value = state_.options.gradient_clip_val.value_or(0),
                                                    .algorithm = state_.options.gradient_clip_algorithm});
}

}  // namespace lockstep::detail
