// Handing what a checkpoint holds to the states of a program.
#pragma once

#include <cstdint>
#include <filesystem>

#include <lockstep/fabric/fabric.h>

namespace lockstep::detail {

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
