// Who writes which tensor of a checkpoint, and into which file.
#pragma once

#include <string>

#include <lockstep/checkpoint/checkpoint.h>

#include "checkpoint/state_json.h"

namespace lockstep::detail {

/// The part of one entry of the state that this rank writes.
struct Share {
  TensorLeaves leaves;
  std::string file;  ///< `model.safetensors`, or one of several as Hugging Face names them
};

/// Not Collective: every rank comes to the same plan, for all know the same tensors, but for the runs of
/// shards, which each writes itself.
Share share_of(const std::string& entry, TensorLeaves leaves, StateDictType type, int rank, int world_size);

/// @throws ConfigError unless `entry` can be the name of a file
void check_entry_name(const std::string& entry);

}  // namespace lockstep::detail
