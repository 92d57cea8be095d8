// When something is due that is to happen every n optimizer steps: as soon as n or more have been done since
// it was due last, since a batch of manual optimisation may do several. Where a batch does one, these are the
// multiples of n.
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep::detail {

/// The step from which a run counts that begins, or goes on, at `global_step`: what a checkpoint knows, if it
/// does.
inline std::int64_t first_due(std::optional<std::int64_t> known, std::int64_t global_step,
                              std::int64_t every) {
  return known.value_or(every > 0 ? global_step - global_step % every : 0);
}

/// Whether `every` steps have been done since `last_due`, which then is `global_step`.
inline bool take_due(std::int64_t& last_due, std::int64_t global_step, std::int64_t every) {
  if (global_step - last_due < every) return false;
  last_due = global_step;
  return true;
}

}  // namespace lockstep::detail
