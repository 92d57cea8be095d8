// Optimizers of ranks whose gradients are averaged: with other settings on one of them, its weights would
// part from the others'.
#pragma once

#include <lockstep/comm/communicator.h>
#include <lockstep/optim/optimizer.h>

namespace lockstep::detail {

/// Compares kind and settings of an optimizer that all ranks have just made. Collective, blocking.
/// @throws CollectiveMismatch on all ranks with the first setting that differs from rank 0's, and that
void require_same_optimizer(const Optimizer& optimizer, const Communicator& comm);

}  // namespace lockstep::detail
