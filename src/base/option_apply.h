// The errors for assignments to options that do not exist.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include <lockstep/base/options.h>

namespace lockstep {

/// An assignment that no option has taken, and its index among all assignments.
struct LeftOver {
  std::size_t index;
  const Assignment* assignment;
};

/// Returns if the assignment may be ignored: an empty group, or a member of an alternative that a later
/// source has replaced. `picked` has the key of each choice that was picked, with the index in `all` of the
/// assignment that picked it.
/// @throws ConfigError otherwise: the key is unknown, a group, below a value, or a member of another
/// alternative
void refuse_unknown(const OptionTree& tree, const LeftOver& left,
                    const std::map<std::string, std::size_t>& picked, std::span<const Assignment> all);

/// Throws the error for a key, flag or variable called `what` that is no option.
[[noreturn]] void throw_unknown(const std::string& what, const std::string& where, const std::string& hint);

}  // namespace lockstep
