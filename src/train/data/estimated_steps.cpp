#include "train/data/estimated_steps.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <lockstep/base/error.h>

#include "train/data/data_place.h"

namespace lockstep::detail {
namespace {

// As it will be, where the next epoch brings another.
AccumulationSchedule schedule_to_come(const RunSetup& setup, const FitProgress& progress) {
  const auto& now = setup.options.accumulate_grad_batches;
  if (!setup.next_accumulation) return now;
  auto epoch = progress.epoch;
  AccumulationSchedule::Steps steps{{0, now.at(epoch)}};
  for (++epoch; epoch != std::numeric_limits<std::int64_t>::max();
       epoch = setup.next_accumulation->next_change(epoch))
    steps[epoch] = setup.next_accumulation->at(epoch);
  return AccumulationSchedule(std::move(steps));
}

// A batch whose optimizer has stepped is as good as done.
std::int64_t steps_to_come(const RunSetup& setup, const FitProgress& progress, std::int64_t batches,
                           std::int64_t epochs) {
  const bool is_done =
      progress.phase == FitPhase::kInBatch && progress.global_step != progress.steps_before_batch;
  const auto next = progress.batches + (is_done ? 1 : 0);
  const auto schedule = schedule_to_come(setup, progress);
  const WindowRule rule(schedule, setup.options.partial_window, /*knows_end=*/true);
  return rule.steps(is_done ? OpenWindow{} : progress.window,
                    {.epoch = progress.epoch, .index = next, .epoch_batches = batches}, epochs);
}

}  // namespace

std::optional<std::int64_t> estimated_steps(const RunSetup& setup, const RunData& data,
                                            const FitProgress& progress) {
  if (setup.stage != Stage::kFit && setup.stage != Stage::kSanityCheck) {
    throw ConfigError("train", {.what = "estimated_stepping_batches()",
                                .expected = "a hook of fit",
                                .got = "stage " + std::string(stage_name(setup.stage))});
  }
  const auto max_steps = setup.options.max_steps;
  const auto max_epochs = *setup.options.max_epochs;
  const auto limit = max_steps >= 0 ? std::optional(max_steps) : std::nullopt;
  const auto batches = num_training_batches(setup, data);
  if (max_epochs < 0 || batches == kUnknownLength) return limit;
  std::int64_t steps = 0;
  if (__builtin_add_overflow(progress.global_step, steps_to_come(setup, progress, batches, max_epochs),
                             &steps))
    steps = std::numeric_limits<std::int64_t>::max();
  return limit ? std::min(*limit, steps) : steps;
}

}  // namespace lockstep::detail
