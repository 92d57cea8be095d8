#include "train/data/estimated_steps.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <lockstep/base/error.h>

#include "train/data/data_place.h"

namespace lockstep::detail {
namespace {

// As it will be, where the next epoch brings another.
AccumulationSchedule schedule_to_come(const RunState& state) {
  const auto& now = state.options.accumulate_grad_batches;
  if (!state.next_accumulation) return now;
  auto epoch = state.progress.epoch;
  AccumulationSchedule::Steps steps{{0, now.at(epoch)}};
  for (++epoch; epoch != std::numeric_limits<std::int64_t>::max();
       epoch = state.next_accumulation->next_change(epoch))
    steps[epoch] = state.next_accumulation->at(epoch);
  return AccumulationSchedule(std::move(steps));
}

// A batch whose optimizer has stepped is as good as done.
std::int64_t steps_to_come(const RunState& state, std::int64_t batches, std::int64_t epochs) {
  const auto& progress = state.progress;
  const bool is_done =
      progress.phase == FitPhase::kInBatch && progress.global_step != progress.steps_before_batch;
  const auto next = progress.batches + (is_done ? 1 : 0);
  const auto schedule = schedule_to_come(state);
  const WindowRule rule(schedule, state.options.partial_window, /*knows_end=*/true);
  return rule.steps(is_done ? OpenWindow{} : progress.window,
                    {.epoch = progress.epoch, .index = next, .epoch_batches = batches}, epochs);
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
  std::int64_t steps = 0;
  if (__builtin_add_overflow(state.progress.global_step, steps_to_come(state, batches, max_epochs), &steps))
    steps = std::numeric_limits<std::int64_t>::max();
  return limit ? std::min(*limit, steps) : steps;
}

}  // namespace lockstep::detail
