// Giving an operator all its floating-point arguments in the type of the parameters that it uses.
#pragma once

#include <c10/core/ScalarType.h>

#include <lockstep/parallel/dispatch/operator_call.h>

namespace lockstep::detail {

/// Casts the floating-point tensors among the arguments of `call` to `dtype`, those in lists, too; not those
/// that it writes to. Differentiable: gradients come back in the type of before.
void cast_arguments(OperatorCall& call, at::ScalarType dtype);

}  // namespace lockstep::detail
