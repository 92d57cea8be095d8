// Reading checkpoints that DeepSpeed wrote.
#pragma once

#include <filesystem>

#include <lockstep/fabric/fabric.h>

namespace lockstep::detail {

/// What the checkpoint of DeepSpeed in `folder` has for `states`, by their names, of tensors that ranks share
/// just this rank's runs; and what else it holds. What it lacks is left out, of a checkpoint of stage 0 an
/// optimizer's state only unless `strict`. Collective, blocking.
/// @throws on every rank: IoError, CheckpointError; on those where nothing is wrong, naming the rank that
/// failed, or that has found another checkpoint than rank 0
StateTree read_deepspeed(const Fabric& fabric, const std::filesystem::path& folder, const NamedStates& states,
                         bool strict);

}  // namespace lockstep::detail
