// The rows of an optimizer in files of DeepSpeed, and how many steps each has had.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "formats/zero_files.h"

namespace lockstep::detail {

/// A number, also one in a tensor of one element; nothing where `value` is null or anything else.
std::optional<double> number_in(const OpenedTorchFile& file, const pickle::Value* value);

/// Where in the optimizer file of a rank that of the optimizer within ZeRO's is; stages 1 to 3.
const char* inner_key(int stage);

/// The dicts of its `state`, by the number of the row.
std::unordered_map<std::int64_t, const pickle::Dict*> rows_in(const pickle::Dict& state);

/// Refuses optimizers of several ranks that were saved at different steps, where their rows say it.
/// @throws CheckpointError naming the file
void check_steps(const ZeroFiles& files);

}  // namespace lockstep::detail
