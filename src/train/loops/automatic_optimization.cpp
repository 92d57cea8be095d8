// Automatic optimisation: backward pass, gradient clipping and optimizer step of one micro-batch.
#include "train/loops/fit_loop.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/torch.h>

#include "base/failure_place.h"
#include "device/step_recording.h"
#include "strategy/scaled_step.h"

namespace lockstep::detail {
namespace {

// "rank 0, epoch 1, batch 2", for errors.
std::string place_of(const StepContext& step) {
  return "rank " + std::to_string(step.global_rank()) + ", epoch " + std::to_string(step.current_epoch()) +
         ", batch " + std::to_string(step.batch_idx());
}

void require_usable(const at::Tensor& loss, const StepContext& step) {
  const bool usable = loss.defined() && loss.numel() == 1 && loss.requires_grad();
  if (usable) return;
  const auto got = !loss.defined()     ? std::string("an undefined tensor")
                   : loss.numel() != 1 ? std::to_string(loss.numel()) + " elements"
                                       : std::string("a tensor that depends on no parameter");
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

double leave_out_loss(const RunSetup& setup, bool& has_warned, const char* what, const StepContext& step) {
  if (setup.communicator().size() > 1) {
    throw ConfigError("train",
                      {.what = what,
                       .expected = "a loss in every batch of every rank, since gradients are averaged",
                       .got = "none",
                       .where = place_of(step),
                       .hint = "a batch that is to add nothing can have a loss of weight 0"});
  }
  if (!std::exchange(has_warned, true))
    log_warning(std::string(what) + " (" + place_of(step) + "); it adds nothing to the gradients");
  return std::numeric_limits<double>::quiet_NaN();
}

Scalar AutomaticOptimization::run(const AnyBatch& batch, const Window& window, StepContext& step) {
  if (batch.empty()) {
    if (captured_) captured_->leave_window();
    return run_micro_batch(batch, window, step);
  }
  const auto measured = measure_.step_with_closure(window.last);
  if (optimizer().needs_closure()) return run_closures(batch, step);
  return is_captured() ? run_captured(batch, window, step) : run_micro_batch(batch, window, step);
}

bool AutomaticOptimization::is_captured() const {
  return setup_.options.cuda_graphs && !setup_.strategy->root_device().is_cpu();
}

// What is on the host is the same in all replays: such a step is not recorded.
at::Tensor AutomaticOptimization::on_device(const Scalar& value, const char* what) const {
  if (value.is_on_device()) return value.tensor();
  refuse_in_recording(what);
  return at::full({}, value.value(), at::TensorOptions(setup_.strategy->root_device()).dtype(at::kDouble));
}

CapturedStep::Tensors AutomaticOptimization::run_recorded(const CapturedStep::Tensors& inputs) {
  std::size_t next = 0;
  const auto in_place = batch_->with_tensors([&](const at::Tensor&) { return inputs.at(next++); });
  if (auto* const recording = StepRecording::current())
    recording->depend_on([this] { return window_.divisor; });
  const auto loss = run_micro_batch(in_place, window_, *step_);
  CapturedStep::Tensors outputs{on_device(loss, "a loss that is on the host")};
  if (window_.last && is_step_taken_.is_on_device()) outputs.push_back(is_step_taken_.tensor());
  return outputs;
}

// Gradients lie on these, whatever is recorded.
std::vector<at::Tensor> AutomaticOptimization::accumulating() const {
  std::vector<at::Tensor> all;
  for (const auto& [name, tensor] :
       setup_.strategy->accumulating_parameters(*setup_.optimizers.front().module))
    all.push_back(tensor);
  return all;
}

Scalar AutomaticOptimization::run_captured(const AnyBatch& batch, const Window& window, StepContext& step) {
  if (!captured_)
    captured_.emplace(
        setup_.strategy->root_device(),
        [this](const CapturedStep::Tensors& inputs) { return run_recorded(inputs); },
        [this] { return accumulating(); }, around_scaled_step(setup_.precision));
  CapturedStep::Tensors inputs;
  batch.with_tensors([&](const at::Tensor& tensor) {
    inputs.push_back(tensor);
    return tensor;
  });
  batch_ = &batch;
  window_ = window;
  step_ = &step;
  const auto outputs = (*captured_)(window, inputs);
  has_batch_ = has_loss_ = true;  // what is not so is not recorded
  if (outputs.size() > 1) is_step_taken_ = Scalar::of_last_use(outputs[1]);
  return Scalar(outputs.front());
}

Scalar AutomaticOptimization::run_micro_batch(const AnyBatch& batch, const Window& window,
                                              StepContext& step) {
  const auto loss = batch.empty() ? at::Tensor() : training_step(batch, step);
  const char* const what = batch.empty() ? "the loader gave no batch" : "training_step gave no loss";
  const Scalar value = loss.defined()
                           ? checked_value(loss, step)
                           : Scalar(leave_out_loss(setup_, status_.has_warned_of_no_loss, what, step));
  if (window.first) open_window(step);
  has_batch_ = (has_batch_ && !window.first) || !batch.empty();
  has_loss_ = (has_loss_ && !window.first) || loss.defined();
  if (loss.defined()) backward(loss, window, step);
  if (window.last && has_batch_) optimizer_step(step);
  return value;
}

// The losses of the window were divided by its full length, so the gradients are scaled up to the mean of the
// micro-batches that ran. Under a strategy that averages only in the window's last backward pass, a loss of
// zero makes it average the gradients.
void AutomaticOptimization::close_window(const OpenWindow& window, StepContext& step) {
  auto& module = *setup_.optimizers.front().module;
  const auto share = static_cast<double>(window.length) / static_cast<double>(window.done);
  for (const auto& [name, parameter] : setup_.strategy->accumulating_parameters(module)) {
    const torch::NoGradGuard no_grad;
    if (parameter.grad().defined()) parameter.mutable_grad().mul_(share);
  }
  if (!setup_.strategy->averages_every_backward()) {
    auto loss = torch::zeros({});
    for (const auto& parameter : module.parameters())
      if (parameter.requires_grad() && parameter.grad().defined()) loss = loss + parameter.sum() * 0;
    torch::nn::Module* const synced = &module;
    if (loss.requires_grad()) setup_.strategy->backward(loss, {&synced, 1U});
  }
  if (has_batch_) optimizer_step(step);
}

void AutomaticOptimization::optimizer_step(StepContext& step) {
  if (!has_loss_ && setup_.precision->grad_scaler() != nullptr) return skip_scaled_step(step);
  unscale_gradients(*setup_.strategy, *setup_.precision, optimizer());
  clip_gradients(step);
  {
    const auto measured = measure_.optimizer_step();
    is_step_taken_ = in_place("the optimizer's step", [&] {
      return step_optimizer(*setup_.strategy, *setup_.precision, optimizer());
    });
  }
  adapt_scale(*setup_.precision);
  once_per_step([this] { progress_.count_optimizer_step(); });
}

// As in Lightning the step is skipped: a scaler has nothing to unscale where no backward pass has run.
void AutomaticOptimization::skip_scaled_step(StepContext& step) {
  hooks_.call(hook::on_before_optimizer_step, step);
  progress_.count_optimizer_step();
}

// The optimizer must see the same loss on all ranks, or its decisions would differ between them.
Scalar AutomaticOptimization::run_closures(const AnyBatch& batch, StepContext& step) {
  std::optional<double> first;
  const auto measured = measure_.optimizer_step();
  step_optimizer_with(*setup_.strategy, *setup_.precision, optimizer(), [&] {
    const auto loss = training_step(batch, step);
    const double value = checked_value(loss, step);
    if (!first) first = value;
    open_window(step);
    backward(loss, {}, step);
    clip_gradients(step);
    return setup_.mean_over_ranks(value);
  });
  progress_.count_optimizer_step();
  return first.value();
}

at::Tensor AutomaticOptimization::training_step(const AnyBatch& batch, StepContext& step) {
  const auto scope = setup_.precision->forward_scope();
  const auto measured = measure_.step();
  return in_place("training_step", [&] { return setup_.module->any_training_step(batch, step); });
}

Scalar AutomaticOptimization::checked_value(const at::Tensor& loss, const StepContext& step) const {
  require_usable(loss, step);
  const auto value = Scalar::of_last_use(loss);
  if (setup_.options.detect_anomaly) require_finite(value, step);
  return value;
}

void AutomaticOptimization::open_window(StepContext& step) {
  hooks_.call(hook::on_before_zero_grad, step);
  const auto measured = measure_.zero_grad();
  setup_.module->optimizer_zero_grad(step);
}

void AutomaticOptimization::backward(at::Tensor loss, const Window& window, StepContext& step) {
  if (window.divisor != 1) loss = loss / window.divisor;
  loss = scaled_loss(*setup_.precision, loss);
  hooks_.call(hook::on_before_backward, step, loss);
  torch::nn::Module* const module = setup_.optimizers.front().module.get();
  {
    const auto measured = measure_.backward();
    const bool averages = window.last || setup_.strategy->averages_every_backward();
    in_place("backward", [&] { setup_.strategy->backward(loss, {&module, averages ? 1U : 0U}); });
  }
  hooks_.call(hook::on_after_backward, step);
}

void AutomaticOptimization::clip_gradients(StepContext& step) {
  hooks_.call(hook::on_before_optimizer_step, step);
  const auto measured = measure_.clipping();
  setup_.module->configure_gradient_clipping(step, {.value = setup_.options.gradient_clip_val.value_or(0),
                                                    .algorithm = setup_.options.gradient_clip_algorithm});
}

}  // namespace lockstep::detail
