// Parameter groups by pattern.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/optimizer_options.h>

namespace lockstep::detail {

/// The groups, and for each parameter the index of its own.
struct Grouping {
  std::vector<Optimizer::Group> groups;
  std::vector<std::size_t> group_of;
};

/// Sorts the parameters into groups: the first pattern that matches a name wins, the rest share `defaults`.
/// @throws ConfigError if a pattern matches no parameter, or none is left for it
Grouping group_parameters(std::span<const NamedParameter> parameters, const Optimizer::Group& defaults,
                          std::span<const ParameterGroup> patterns);

}  // namespace lockstep::detail
