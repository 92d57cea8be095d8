// Who writes which tensor of a checkpoint, and into which file.
#pragma once

#include <string>
#include <vector>

#include <lockstep/checkpoint/checkpoint.h>

#include "checkpoint/state_json.h"

namespace lockstep::detail {

/// The first name in the paths of tensors that ranks have for themselves.
inline constexpr auto kOwnEntry = "ranks";

/// The part of one entry of the state that this rank writes.
struct Share {
  TensorLeaves leaves;
  std::string file;                     ///< `model.safetensors`, or one of several as Hugging Face names them
  std::vector<std::string> files = {};  ///< those of all ranks
};

/// Not Collective: every rank comes to the same plan, for all know the same tensors, but for the runs of
/// shards, which each writes itself.
Share share_of(const std::string& entry, TensorLeaves leaves, StateDictType type, int rank, int world_size);

/// What `rank` has for itself, all of which it writes.
Share own_share(TensorLeaves leaves, int rank, int world_size);

/// @throws CheckpointError unless `entry` can be the name of a file, and of tensors that are no rank's own
void check_entry_name(const std::string& entry);

}  // namespace lockstep::detail
