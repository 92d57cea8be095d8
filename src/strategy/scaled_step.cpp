#include "strategy/scaled_step.h"

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/option_type.h>
#include <lockstep/precision/grad_scaler.h>

#include "device/step_recording.h"
#include "optim/fused.h"

namespace lockstep::detail {
namespace {

GradScaler* active_scaler(Precision& precision) {
  auto* const scaler = precision.grad_scaler();
  return scaler != nullptr && scaler->is_enabled() ? scaler : nullptr;
}

constexpr std::int64_t kManySkipped = 10;        // in a row
constexpr std::int64_t kStepsBetweenLooks = 64;  // where each look waits for a device

void warn_of_many_skipped(const GradScaler& scaler) {
  const auto scale = scaler.get_scale();
  log_warning("the last " + std::to_string(scaler.skipped_in_a_row()) +
              " optimizer steps were left out, up to step " + std::to_string(scaler.steps()) +
              (scale == 1
                   ? ": gradients were not finite; look for what is infinite or NaN"
                   : ", of which the loss scale was " + OptionType<double>::print(scale) +
                         ": gradients overflowed in float16; look for what is infinite or NaN, or train "
                         "in bfloat16"));
}

// Some are how a scale is found; without one the first, and so many in a row mean that something is wrong.
void warn_of_skipped(const GradScaler& scaler) {
  if (scaler.skipped_steps() == 1 && scaler.get_scale() == 1)
    log_warning("optimizer step " + std::to_string(scaler.steps()) +
                " was left out: gradients were infinite or NaN (further ones are counted)");
  if (scaler.skipped_in_a_row() == kManySkipped) warn_of_many_skipped(scaler);
}

// All ranks: what they see may be an error, of all alike.
void look_at_skipped(const GradScaler& scaler, bool warns) {
  if (scaler.steps() % kStepsBetweenLooks != 0) return;
  if (scaler.skipped_in_a_row() >= kManySkipped && warns) warn_of_many_skipped(scaler);
}

}  // namespace

void adapt_scale(Precision& precision) {
  auto* const scaler = active_scaler(precision);
  if (scaler != nullptr && scaler->has_stepped()) scaler->update();
}

CapturedStep::Around around_scaled_step(std::shared_ptr<Precision> precision) {
  return {.before_step = [precision] { adapt_scale(*precision); },
          .given_up =
              [precision] {
                if (auto* const scaler = active_scaler(*precision)) scaler->discard_all();
              }};
}

at::Tensor scaled_loss(Precision& precision, const at::Tensor& loss) {
  auto* const scaler = active_scaler(precision);
  if (scaler == nullptr) return loss;
  adapt_scale(precision);
  return scaler->scale(loss);
}

void unscale_gradients(Strategy& strategy, Precision& precision, Optimizer& optimizer) {
  auto* const scaler = active_scaler(precision);
  if (scaler == nullptr || scaler->is_unscaled(optimizer)) return;
  const bool is_known = scaler->knows_scale();
  if (is_known && strategy.unscale_in_step(optimizer, 1.0 / scaler->get_scale())) {
    scaler->check(optimizer);
  } else {
    scaler->unscale(optimizer);
  }
  if (!strategy.shards_gradients()) return;
  scaler->agree(optimizer, [&](const at::Tensor& found_inf) {
    strategy.communicator().all_reduce(found_inf, ReduceOp::kMax);
  });
}

Scalar clip_gradients(Strategy& strategy, Precision& precision, Optimizer& optimizer, GradientClip clip) {
  unscale_gradients(strategy, precision, optimizer);
  auto* const scaler = active_scaler(precision);
  if (clip.error_if_nonfinite && scaler != nullptr)
    clip.error_if_nonfinite = !scaler->has_overflowed(optimizer);
  return strategy.clip_gradients_lazily(optimizer, clip);
}

void zero_grad(Precision& precision, Optimizer& optimizer, bool set_to_none) {
  optimizer.zero_grad(set_to_none);
  begin_with(precision, optimizer);
}

void begin_with(Precision& precision, const Optimizer& optimizer) {
  if (auto* const scaler = precision.grad_scaler()) scaler->discard(optimizer);
}

Scalar step_optimizer(Strategy& strategy, Precision& precision, Optimizer& optimizer) {
  if (StepRecording::current() != nullptr && !can_be_captured(optimizer))
    refuse_in_recording("a step of " + std::string(optimizer.name()) + ", which is not lockstep's own,");
  auto* const scaler = active_scaler(precision);
  if (scaler == nullptr) {
    strategy.optimizer_step(optimizer);
    return 1;
  }
  unscale_gradients(strategy, precision, optimizer);
  const bool warns = strategy.communicator().rank() == 0;
  const auto taken = scaler->step_lazily(optimizer, [&] { strategy.optimizer_step(optimizer); });
  if (taken.is_on_device()) {
    once_per_step([scaler, warns] { look_at_skipped(*scaler, warns); });
    return taken;
  }
  if (taken != 0) return taken;
  strategy.skip_optimizer_step(optimizer);
  if (warns) warn_of_skipped(*scaler);
  return taken;
}

double step_optimizer_with(Strategy& strategy, Precision& precision, Optimizer& optimizer,
                           const Optimizer::Closure& closure) {
  if (active_scaler(precision) != nullptr) {
    throw ConfigError("strategy", {.what = std::string(optimizer.name()) + " with a gradient scaler",
                                   .expected = "an optimizer that takes one gradient for a step",
                                   .got = "one that evaluates the loss itself",
                                   .hint = "use precision bf16-mixed or 32-true"});
  }
  return strategy.optimizer_step_with(optimizer, closure);
}

}  // namespace lockstep::detail
