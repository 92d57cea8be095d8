// "Did you mean ...?": the known name that is closest to a mistyped one.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep {

/// The name in `known` with the smallest edit distance to `name` (insert, delete, replace, swap of
/// neighbours; case does not count and `-` equals `_`), or nothing when none is near: more than a
/// third of the letters, and more than two, would have to change. Ties go to the first.
LOCKSTEP_API std::optional<std::string> nearest_name(std::string_view name,
                                                     std::span<const std::string> known);

/// As nearest_name, for dotted keys: when no whole key is near, keys are compared by their last
/// part, so that `max_epochs` finds `trainer.max_epochs`.
LOCKSTEP_API std::optional<std::string> nearest_key(std::string_view key, std::span<const std::string> known);

/// `did you mean NAME?`, or an empty text without a name. Meant for ErrorParts::hint.
LOCKSTEP_API std::string did_you_mean(const std::optional<std::string>& name, std::string_view prefix = {});

}  // namespace lockstep
