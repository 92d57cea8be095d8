// Handing what a checkpoint holds to the states of a program.
#pragma once

#include <cstdint>
#include <filesystem>

#include <lockstep/fabric/fabric.h>

namespace lockstep::detail {

// Reading checkpoints that DeepSpeed wrote.

/// What the checkpoint of DeepSpeed in `folder` has for `states`, by their names, of tensors that ranks share
/// just this rank's runs; and what else it holds. What it lacks is left out, of a checkpoint of stage 0 an
/// optimizer's state only unless `strict`. Collective, blocking.
/// @throws on every rank: IoError, CheckpointError; on those where nothing is wrong, naming the rank that
/// failed, or that has found another checkpoint than rank 0
StateTree read_deepspeed(const Fabric& fabric, const std::filesystem::path& folder, const NamedStates& states,
                         bool strict);

/// Whether one of `states` is an optimizer.
bool has_optimizer(const NamedStates& states);

/// Fabric::save(), of a run that has made `global_step` optimizer steps.
void save_states(const Fabric& fabric, const std::filesystem::path& folder, const NamedStates& states,
                 const SaveFilter& filter, std::int64_t global_step);

/// Sets `states` to what is in `saved`, which was read from `folder`; returns what is left. The state of the
/// precision goes with an optimizer's.
/// @throws CheckpointError naming what is missing or does not fit
StateTree take_states(const Fabric& fabric, const std::filesystem::path& folder, const StateTree& saved,
                      const NamedStates& states, const LoadOptions& options);

}  // namespace lockstep::detail
