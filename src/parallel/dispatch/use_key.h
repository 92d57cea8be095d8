// The dispatch key that marked tensors carry.
#pragma once

#include <c10/core/DispatchKey.h>

namespace lockstep::detail {

/// The key, chosen and given our fallback by the first call: the first of those above autograd and autocast
/// that nobody uses. Thread-safe.
/// @throws ConfigError if all are taken
c10::DispatchKey use_key();

}  // namespace lockstep::detail
