// A hook of a parameter that runs behind all others.
#pragma once

#include <lockstep/parallel/autograd.h>

namespace lockstep::detail {

/// As register_post_accumulate_grad_hook(), but `hook` runs behind those that are registered without this,
/// also later: it may take the gradient away.
/// @throws ConfigError as register_post_accumulate_grad_hook()
RemovableHandle register_last_grad_hook(const at::Tensor& parameter, PostAccumulateGradHook hook);

}  // namespace lockstep::detail
