// Optimizers of ranks whose gradients are averaged: with other settings on one of them, its weights would
// part from the others'.
#pragma once

#include <lockstep/comm/communicator.h>
#include <lockstep/optim/optimizer.h>

namespace lockstep::detail {

/// Compares kind and settings of an optimizer that all ranks have just made. Collective, blocking.
/// @throws CollectiveMismatch on all ranks with the first setting that differs from rank 0's, and that
void require_same_optimizer(const Optimizer& optimizer, const Communicator& comm);

/// Before a checkpoint: says once, on rank 0, which setting differs, as where ranks give their schedules
/// metrics of their own. No error, since ranks that leave a Join early may have stepped schedules less often.
/// Collective, blocking.
void warn_of_other_settings(const Optimizer& optimizer, const Communicator& comm);

}  // namespace lockstep::detail
