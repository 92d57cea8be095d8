// A StateTree as JSON, with its tensors left out and named by their path.
//
// Integers, finite numbers, bools and strings are JSON's own, and lists are arrays. What JSON has not is an
// object of one key: {"tree": {...}}, {"tensor": PATH}, {"number": "inf"}, {"bytes": HEX}, and {"string":
// HEX} for a string that is no UTF-8.
#pragma once

#include <functional>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include <lockstep/state/state_tree.h>

namespace lockstep::detail {

/// What a rank has of a tensor.
struct TensorLeaf {
  TensorShard run;
  bool is_whole = true;  ///< it has all of it, in the tensor's own shape
};

/// By path: names with "/" between them.
using TensorLeaves = std::map<std::string, TensorLeaf>;

/// Adds the tensors in `value`, which hangs at `path`, to `tensors`.
/// @throws CheckpointError naming the path of what a checkpoint cannot hold, or give back: a name that is no
///   UTF-8, a tensor without bytes or of a type that the files have not, two of one path, too many levels
nlohmann::ordered_json to_json(const StateValue& value, const std::string& path, TensorLeaves& tensors);

/// Gives the tensor of a path: a tensor or a shard. `wanted` is what the tree that is wanted has there, or
/// null.
using TensorSource = std::function<StateValue(const std::string& path, const StateValue* wanted)>;

/// The reverse, walking along `wanted`, which may be null. @throws CheckpointError naming what cannot be
StateValue from_json(const nlohmann::ordered_json& json, const StateValue* wanted,
                     const TensorSource& tensors);

}  // namespace lockstep::detail
