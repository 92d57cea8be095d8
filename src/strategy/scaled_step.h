// Steps whose losses and gradients a precision may scale: what Trainer and Fabric do around a strategy.
// Exported for tests.
#pragma once

#include <lockstep/precision/precision.h>
#include <lockstep/strategy/strategy.h>

namespace lockstep::detail {

/// What backward() starts from: the loss, scaled where the precision scales.
LOCKSTEP_API at::Tensor scaled_loss(Precision& precision, const at::Tensor& loss);

/// Lets the optimizer's gradients be looked at and clipped: divides them by the scale, unless that was done.
/// Returns whether they are usable: false where one is infinite or NaN and the step will be left out, true
/// without a scale. Collective where the strategy shards gradients.
LOCKSTEP_API bool unscale_gradients(Strategy& strategy, Precision& precision, Optimizer& optimizer);

/// Clips the optimizer's gradients, unscaled; returns their norm before that, or 0 where each value is
/// clipped. Where they have overflowed the step will be left out, and a norm that is not finite is no error.
/// Collective.
LOCKSTEP_API double clip_gradients(Strategy& strategy, Precision& precision, Optimizer& optimizer,
                                   GradientClip clip);

/// Forgets the optimizer's gradients, and what a scaler knows of them.
LOCKSTEP_API void zero_grad(Precision& precision, Optimizer& optimizer, bool set_to_none);

/// Forgets what a scaler knows of gradients of an optimizer that was at this address before and is gone.
LOCKSTEP_API void begin_with(Precision& precision, const Optimizer& optimizer);

/// Steps, or leaves the step out; returns whether it was taken. Collective.
LOCKSTEP_API bool step_optimizer(Strategy& strategy, Precision& precision, Optimizer& optimizer);

/// The same for an optimizer that needs a closure; returns the first loss. Collective.
/// @throws ConfigError where a scale is at work: such an optimizer looks at losses and gradients itself
LOCKSTEP_API double step_optimizer_with(Strategy& strategy, Precision& precision, Optimizer& optimizer,
                                        const Optimizer::Closure& closure);

/// Adapts the scale to the steps since the last time. Every scaled_loss() begins with it, so that all
/// optimizers of an iteration step with the scale that their gradients were made with.
LOCKSTEP_API void adapt_scale(Precision& precision);

}  // namespace lockstep::detail
