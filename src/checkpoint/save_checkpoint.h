// save_checkpoint() of a state that is yet to be had.
#pragma once

#include <filesystem>
#include <functional>

#include <lockstep/checkpoint/checkpoint.h>

namespace lockstep::detail {

/// Gives the state, or throws.
using StateSource = std::function<const CheckpointState&()>;

/// As save_checkpoint(); that `state` throws on one rank, all hear as of any other failure.
void save_checkpoint_of(const std::filesystem::path& folder, const StateSource& state,
                        const CheckpointInfo& info, const Communicator& communicator,
                        const SaveOptions& options);

}  // namespace lockstep::detail
