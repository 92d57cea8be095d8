// Reading checkpoints that DeepSpeed wrote.
#pragma once

#include <filesystem>

#include <lockstep/fabric/fabric.h>

namespace lockstep::detail {

/// What the checkpoint of DeepSpeed in `folder` has for `states`, by their names, of tensors that ranks share
/// just this rank's runs; and what else it holds. Collective, blocking.
/// @throws on every rank: IoError, CheckpointError; on those where nothing is wrong, naming the rank that
/// failed
StateTree read_deepspeed(const Fabric& fabric, const std::filesystem::path& folder,
                         const NamedStates& states);

}  // namespace lockstep::detail
