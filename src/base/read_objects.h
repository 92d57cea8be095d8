// Reading lists of objects: what assignments say becomes objects.
#pragma once

#include <string>
#include <vector>

#include <lockstep/base/option_codec.h>
#include <lockstep/base/option_objects.h>

namespace lockstep {

/// The items of a list of objects that `value` says, each a word or a map.
/// @throws ConfigError where a text that begins with a bracket is no YAML
std::vector<OptionText> object_items(const Assignment& assignment, const OptionText& value);

/// Refuses `below`, an entry of a map in the place of the list `key`.
/// @throws ConfigError, always
[[noreturn]] void refuse_map_of_objects(const std::string& key, const Assignment& below);

/// Sets `list`, whose key is `key`, to what `assignment` says; `appends`: adds that to it.
/// @throws ConfigError naming what is wrong, where, and what is accepted
void read_objects(OptionObjects& list, const std::string& key, const Assignment& assignment, bool appends);

}  // namespace lockstep
