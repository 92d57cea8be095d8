#include "train/progress.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

constexpr std::pair<std::string_view, FitPhase> kPhases[] = {
    {"epoch_start", FitPhase::kEpochStart}, {"batches", FitPhase::kBatches},
    {"batch_end", FitPhase::kBatchEnd},     {"validation", FitPhase::kValidation},
    {"epoch_end", FitPhase::kEpochEnd},     {"in_batch", FitPhase::kInBatch}};

std::string name_of(FitPhase phase) {
  return std::string(std::ranges::find(kPhases, phase, [](auto row) { return row.second; })->first);
}

FitPhase phase_of(const StateTree& state) {
  const auto& name = state.get<std::string>("phase");
  const auto* row = std::ranges::find(kPhases, name, [](auto known) { return known.first; });
  if (row != std::end(kPhases) && row->second != FitPhase::kInBatch) return row->second;
  throw CheckpointError("train", {.what = "state " + state.path() + "/phase",
                                  .expected = "epoch_start, batches, batch_end, validation or epoch_end",
                                  .got = name});
}

}  // namespace

StateTree state_of(const Progress& progress) {
  StateTree state;
  state.set("epoch", progress.epoch);
  state.set("batches", progress.batches);
  state.set("global_step", progress.global_step);
  state.set("batches_that_stepped", progress.batches_that_stepped);
  state.set("samples", progress.samples);
  state.set("evaluation_batches", progress.evaluation_batches);
  state.set("phase", name_of(progress.phase));
  state.set("validation_batches", progress.validation.batches);
  state.set("validation_has_ended", progress.validation.has_ended);
  return state;
}

void load_state(Progress& progress, const StateTree& state) {
  progress = {.epoch = state.get<std::int64_t>("epoch"),
              .batches = state.get<std::int64_t>("batches"),
              .global_step = state.get<std::int64_t>("global_step"),
              .batches_that_stepped = state.get<std::int64_t>("batches_that_stepped"),
              .samples = state.get<std::int64_t>("samples"),
              .evaluation_batches = state.get<std::int64_t>("evaluation_batches"),
              .phase = phase_of(state),
              .validation = {.batches = state.get<std::int64_t>("validation_batches"),
                             .has_ended = state.get<bool>("validation_has_ended")},
              .num_training_batches = progress.num_training_batches};
}

}  // namespace lockstep::detail
