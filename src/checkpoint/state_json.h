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

/// The part of a tensor that a rank has.
struct TensorLeaf {
  TensorShard run;
  bool is_whole = true;  ///< it is the whole tensor, in its own shape
};

/// Tensors by path: names with "/" between them.
using TensorLeaves = std::map<std::string, TensorLeaf>;

/// `value` as JSON. Adds its tensors to `tensors`, under paths that begin with `path`.
/// @throws CheckpointError naming the path of what a checkpoint cannot store or read again: a name that is no
/// UTF-8, a tensor without memory or of a type that the files lack, two tensors of one path, too many levels
nlohmann::ordered_json to_json(const StateValue& value, const std::string& path, TensorLeaves& tensors);

/// Returns the tensor or shard of a path. `wanted` is the value that the wanted tree has there, or null.
using TensorSource = std::function<StateValue(const std::string& path, const StateValue* wanted)>;

/// The value that to_json() has written. `wanted`, which may be null, is walked along. @throws
/// CheckpointError naming what cannot be
StateValue from_json(const nlohmann::ordered_json& json, const StateValue* wanted,
                     const TensorSource& tensors);

}  // namespace lockstep::detail
