// DeepSpeed's deepspeed.utils.safe_*: a parameter, its gradient and what an optimizer keeps of it, whole or
// this rank's run, wherever a strategy has put them: in shards or not, in float32 beside 16 bits, or on disk.
//
//     // in on_before_optimizer_step(step), or between fabric.backward() and optimizer->step()
//     const auto gradient = ls::deepspeed::safe_get_full_grad(net->head->weight);
//     const auto mean =
//         ls::deepspeed::safe_get_full_optimizer_state(net->head->weight, "exp_avg", step.optimizer());
//
// `parameter` is always the module's own tensor. What is returned is a copy in float32 (float64 of float64),
// in the parameter's shape, or flat where it is this rank's run. Values that are set have that shape, any
// floating dtype, and, where they are whole, the same elements on every rank. Not within
// zero::GatheredParameters of the same parameter, whose close() would take it back. All throw ConfigError for
// a value of another shape.
#pragma once

#include <functional>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/optim/optimizer.h>

namespace lockstep::deepspeed {

/// The parameter, in the digits of the shards. Collective over the ranks that share it, blocking.
LOCKSTEP_API at::Tensor safe_get_full_fp32_param(const at::Tensor& parameter);
/// Sets it on every rank. All ranks alike, but does not communicate.
LOCKSTEP_API void safe_set_full_fp32_param(const at::Tensor& parameter, const at::Tensor& value);

/// The mean over ranks, from an averaged backward to zero_grad(); undefined where there is none. Times what
/// clipping has left to the step. With a loss scale (16-mixed) it is scaled until clip_gradients() or the
/// Trainer, before on_before_optimizer_step(), has unscaled it, and so must be what is set: a Fabric program
/// calls fabric.clip_gradients() first. Of a sharded parameter not what has yet to be averaged, which is this
/// rank's `parameter.grad()`. Collective over the ranks that share the parameter, blocking.
LOCKSTEP_API at::Tensor safe_get_full_grad(const at::Tensor& parameter);
/// Sets it for the step that comes. Its norm is taken anew when it is clipped after that. All ranks alike,
/// but does not communicate. @throws ConfigError where there is no gradient at the moment
LOCKSTEP_API void safe_set_full_grad(const at::Tensor& parameter, const at::Tensor& value);

/// What `optimizer` keeps of it: "exp_avg", "exp_avg_sq", "momentum_buffer", ... ("step" has no dimensions).
/// Collective over the ranks that share the parameter, blocking.
/// @throws ConfigError naming the kinds there are, or where the optimizer does not train it
LOCKSTEP_API at::Tensor safe_get_full_optimizer_state(const at::Tensor& parameter, const std::string& kind,
                                                      lockstep::Optimizer& optimizer);
/// Sets it. All ranks alike, but does not communicate. @throws as above
LOCKSTEP_API void safe_set_full_optimizer_state(const at::Tensor& parameter, const at::Tensor& value,
                                                const std::string& kind, lockstep::Optimizer& optimizer);

/// Replaces the gradient of each parameter that has one by update(gradient, parameter), which gives the same
/// on every rank: a whole gradient is there at a time. Collective over the ranks that share them, blocking.
LOCKSTEP_API void safe_update_full_grad_vectorized(
    std::span<const at::Tensor> parameters,
    const std::function<at::Tensor(const at::Tensor& gradient, const at::Tensor& parameter)>& update);

/// The same of this rank's run, which may be empty; all of it, flat, where the parameter is not sharded. Not
/// Collective; gradients are set by all ranks alike, each its run.
LOCKSTEP_API at::Tensor safe_get_local_fp32_param(const at::Tensor& parameter);
/// Sets this rank's run. Not Collective.
LOCKSTEP_API void safe_set_local_fp32_param(const at::Tensor& parameter, const at::Tensor& value);
/// This rank's run of the gradient. Not Collective.
LOCKSTEP_API at::Tensor safe_get_local_grad(const at::Tensor& parameter);
/// Sets this rank's run of the gradient. Not Collective.
LOCKSTEP_API void safe_set_local_grad(const at::Tensor& parameter, const at::Tensor& value);
/// This rank's run of an optimizer state such as "exp_avg". Not Collective.
LOCKSTEP_API at::Tensor safe_get_local_optimizer_state(const at::Tensor& parameter, const std::string& kind,
                                                       lockstep::Optimizer& optimizer);
/// Sets this rank's run of an optimizer state. Not Collective.
LOCKSTEP_API void safe_set_local_optimizer_state(const at::Tensor& parameter, const at::Tensor& value,
                                                 const std::string& kind, lockstep::Optimizer& optimizer);

}  // namespace lockstep::deepspeed
