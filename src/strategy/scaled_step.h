// Steps whose losses and gradients a precision may scale: what Trainer and Fabric do around a strategy.
// Exported for tests.
#pragma once

#include <memory>

#include <lockstep/device/captured_step.h>
#include <lockstep/precision/precision.h>
#include <lockstep/strategy/strategy.h>

namespace lockstep::detail {

/// What backward() starts from: the loss, scaled where the precision scales.
LOCKSTEP_API at::Tensor scaled_loss(Precision& precision, const at::Tensor& loss);

/// Lets the optimizer's gradients be looked at and clipped: divides them by the scale, unless that was done.
/// Collective where the strategy shards gradients.
LOCKSTEP_API void unscale_gradients(Strategy& strategy, Precision& precision, Optimizer& optimizer);

/// Clips the optimizer's gradients, unscaled; returns their norm before that, or 0 where each value is
/// clipped. Where they have overflowed the step will be left out, and a norm that is not finite is no error.
/// Waits for a device only where clip.error_if_nonfinite, or as Strategy::clip_gradients_lazily. Collective.
LOCKSTEP_API Scalar clip_gradients(Strategy& strategy, Precision& precision, Optimizer& optimizer,
                                   GradientClip clip);

/// Forgets the optimizer's gradients, and what a scaler knows of them.
LOCKSTEP_API void zero_grad(Precision& precision, Optimizer& optimizer, bool set_to_none);

/// Forgets what a scaler knows of gradients of an optimizer that was at this address before and is gone.
LOCKSTEP_API void begin_with(Precision& precision, const Optimizer& optimizer);

/// Steps, or leaves the step out; returns whether it was taken: 1 or 0, which may be on the device still.
/// Collective.
LOCKSTEP_API Scalar step_optimizer(Strategy& strategy, Precision& precision, Optimizer& optimizer);

/// The same for an optimizer that needs a closure; returns the first loss. Collective.
/// @throws ConfigError where a scale is at work: such an optimizer looks at losses and gradients itself
LOCKSTEP_API double step_optimizer_with(Strategy& strategy, Precision& precision, Optimizer& optimizer,
                                        const Optimizer::Closure& closure);

/// What a captured step with this precision needs: the scale of steps before is adapted first, and what a
/// scaler was told by a step that was not done is forgotten.
LOCKSTEP_API CapturedStep::Around around_scaled_step(std::shared_ptr<Precision> precision);

/// Adapts the scale to the steps since the last time. Every scaled_loss() begins with it, so that all
/// optimizers of an iteration step with the scale that their gradients were made with.
LOCKSTEP_API void adapt_scale(Precision& precision);

}  // namespace lockstep::detail
