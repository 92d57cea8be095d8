// Many names in one: `data-{000..099}.tar`, as shells and WebDataset write lists of shards.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>

namespace lockstep {

/// The names that `pattern` stands for, in bash's order: `{a,b}` is each of the alternatives, which may hold
/// braces themselves, `{08..11}` every number from the one to the other, padded with zeros to the same width
/// if one of them is, `{1..9..4}` every fourth, `{a..f}` every letter. Braces that hold neither a comma nor a
/// range stay as they are. Never throws for bad input; the reason says what is wrong: a brace that is not
/// closed, more than `max_names` names.
LOCKSTEP_API Expected<std::vector<std::string>> expand_braces(std::string_view pattern,
                                                              std::size_t max_names = 1'000'000);

}  // namespace lockstep
