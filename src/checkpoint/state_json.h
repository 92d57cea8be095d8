// A StateTree as JSON, with its tensors left out and named.
//
// Integers, finite numbers, bools and strings are JSON's own, and lists are arrays. What JSON has not is an
// object of one key: {"tree": {...}}, {"tensor": KEY}, {"number": "inf"}, {"bytes": HEX}.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include <lockstep/checkpoint/weights.h>
#include <lockstep/state/state_tree.h>

namespace lockstep::detail {

/// Adds the tensors in `value` to `tensors`, under their names below it with "/" between them; a tensor
/// itself is "tensor".
nlohmann::ordered_json to_json(const StateValue& value, NamedTensors& tensors);

/// The reverse. @throws CheckpointError naming what cannot be
StateValue from_json(const nlohmann::ordered_json& json, const NamedTensors& tensors);

}  // namespace lockstep::detail
