#include "train/estimated_steps.h"

#include <algorithm>
#include <limits>

#include <lockstep/base/error.h>

#include "train/data_place.h"

namespace lockstep::detail {
namespace {

std::int64_t steps_of_epoch(const RunState& state, std::int64_t batches, std::int64_t epoch) {
  const std::int64_t window = state.options.accumulate_grad_batches.at(epoch);
  return (batches + window - 1) / window;
}

// epochs * steps + more, or the most there can be.
std::int64_t steps_or_most(std::int64_t epochs, std::int64_t steps, std::int64_t more = 0) {
  std::int64_t all = 0;
  const bool is_too_many =
      __builtin_mul_overflow(epochs, steps, &all) || __builtin_add_overflow(all, more, &all);
  return is_too_many ? std::numeric_limits<std::int64_t>::max() : all;
}

// Epochs may be as many as an int64_t holds: those behind the last change of the windows are alike.
std::int64_t steps_of_epochs(const RunState& state, std::int64_t batches, std::int64_t epochs) {
  std::int64_t steps = 0;
  std::int64_t epoch = 0;
  const auto changes_until = std::min(epochs, state.options.accumulate_grad_batches.last_change());
  for (; epoch < changes_until; ++epoch) steps += steps_of_epoch(state, batches, epoch);
  return steps_or_most(epochs - epoch, steps_of_epoch(state, batches, epoch), steps);
}

}  // namespace

std::optional<std::int64_t> estimated_steps(const RunState& state) {
  if (state.stage != Stage::kFit && state.stage != Stage::kSanityCheck) {
    throw ConfigError("train", {.what = "estimated_stepping_batches()",
                                .expected = "a hook of fit",
                                .got = "stage " + std::string(stage_name(state.stage))});
  }
  const auto max_steps = state.options.max_steps;
  const auto max_epochs = *state.options.max_epochs;
  const auto limit = max_steps >= 0 ? std::optional(max_steps) : std::nullopt;
  const auto batches = num_training_batches(state);
  if (max_epochs < 0 || batches == kUnknownLength) return limit;
  const bool carries = state.options.partial_window == PartialWindow::kCarry;
  const auto steps = carries
                         ? steps_or_most(max_epochs, batches) / state.options.accumulate_grad_batches.at(0)
                         : steps_of_epochs(state, batches, max_epochs);
  return limit ? std::min(*limit, steps) : steps;
}

}  // namespace lockstep::detail
