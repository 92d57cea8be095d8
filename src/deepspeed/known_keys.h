// Keys of DeepSpeed's configuration that are not simply settings of ours: other names, sections that are not
// supported, and how strict each section is about keys that nobody knows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "deepspeed/hjson.h"

namespace lockstep::deepspeed {

/// Whether an unknown key in the section at `path` is an error in DeepSpeed. Elsewhere it goes unseen there,
/// and is a warning here.
bool is_strict(std::string_view path);

/// Why the known key at `path` has no effect; empty for other keys.
std::string_view unsupported(std::string_view path);

/// What to write instead of the key at `path`, which has never been accepted; empty for other keys.
std::string_view instead_of(std::string_view path);

/// Gives keys that have another name now their present name and form, in `root`, a whole configuration. Adds
/// to `warnings` what is deprecated.
/// @throws ConfigError when a key is given under both names
void rename_keys(Hjson& root, const std::string& name, std::vector<std::string>& warnings);

// Blocks of DeepSpeed's configuration without which training would silently be another one.

/// Known by its name, and refused where it is asked for.
struct RefusedBlock {
  std::string_view path;
  std::string_view consequence;  ///< of leaving it out
  std::string_view instead;      ///< what to do
  bool (*is_asked_for)(const Hjson& value);
};

/// That at `path`, or null.
const RefusedBlock* refused_block(std::string_view path);

}  // namespace lockstep::deepspeed
