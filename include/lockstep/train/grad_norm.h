// The norm of the gradients of a step, whatever ranks they lie on.
#pragma once

#include <lockstep/base/export.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/train/module.h>

namespace lockstep {

/// The p-norm of all gradients of step.optimizer(), those of the global batch: for hooks from
/// on_after_backward to on_before_optimizer_step. The total of Lightning's grad_norm(module, norm_type).
/// Collective where the strategy shards gradients. @throws as grad_norm()
LOCKSTEP_API double grad_norm(StepContext& step, double norm_type = 2.0);

}  // namespace lockstep
