// Actions that are due every n optimizer steps: as soon as n or more steps have been taken since the last
// time, since a batch of manual optimisation may take several. Where a batch takes one, these are the
// multiples of n.
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep::detail {

/// The step from which a run that begins or resumes at `global_step` counts: the one that a checkpoint
/// contains, if it does.
inline std::int64_t first_due(std::optional<std::int64_t> known, std::int64_t global_step,
                              std::int64_t every) {
  return known.value_or(every > 0 ? global_step - global_step % every : 0);
}

/// Whether `every` steps have been taken since `last_due`; sets that to `global_step` then.
inline bool take_due(std::int64_t& last_due, std::int64_t global_step, std::int64_t every) {
  if (global_step - last_due < every) return false;
  last_due = global_step;
  return true;
}

}  // namespace lockstep::detail
