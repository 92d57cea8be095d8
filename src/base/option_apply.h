// Assignments to options: how they are applied, and what is wrong with one that no option has taken.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include <lockstep/base/options.h>

namespace lockstep {

/// An assignment that no option has taken, and its place among all.
struct LeftOver {
  std::size_t index;
  const Assignment* assignment;
};

/// Returns if it may be left aside: nothing in a group, or a member of a choice that fell.
/// `picked`: key of each choice that was picked, with the index in `all` of what picked it.
/// @throws ConfigError that says why otherwise: unknown, a group, below a value, of another choice
void refuse_unknown(const OptionTree& tree, const LeftOver& left,
                    const std::map<std::string, std::size_t>& picked, std::span<const Assignment> all);

/// The error for a key, flag or variable called `what` that is no option.
[[noreturn]] void throw_unknown(const std::string& what, const std::string& where, const std::string& hint);

}  // namespace lockstep
