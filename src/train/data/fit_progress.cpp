#include "train/data/fit_progress.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/rank_status.h>

namespace lockstep::detail {
namespace {

constexpr std::pair<std::string_view, FitPhase> kPhases[] = {
    {"epoch_start", FitPhase::kEpochStart}, {"batches", FitPhase::kBatches},
    {"batch_end", FitPhase::kBatchEnd},     {"validation", FitPhase::kValidation},
    {"epoch_end", FitPhase::kEpochEnd},     {"epoch_logged", FitPhase::kEpochLogged}};

constexpr std::pair<std::string_view, EvaluationPhase> kEvaluationPhases[] = {
    {"none", EvaluationPhase::kNone},
    {"start", EvaluationPhase::kStart},
    {"epoch_start", EvaluationPhase::kEpochStart},
    {"epoch_end", EvaluationPhase::kEpochEnd},
    {"end", EvaluationPhase::kEnd}};

template <class Table, class Phase>
std::string name_of(const Table& table, Phase phase) {
  return std::string(std::ranges::find(table, phase, [](auto row) { return row.second; })->first);
}

template <class Table>
auto phase_of(const Table& table, const StateTree& state, const std::string& key) {
  const auto& name = state.get<std::string>(key);
  const auto* row = std::ranges::find(table, name, [](auto known) { return known.first; });
  if (row != std::end(table)) return row->second;
  std::string known;
  for (const auto& [phase, value] : table) known.append(known.empty() ? "" : ", ").append(phase);
  throw CheckpointError(
      "train", {.what = "state " + state.path() + "/" + key, .expected = "one of " + known, .got = name});
}

std::int64_t count_of(const StateTree& state, const std::string& key) {
  const auto count = state.get<std::int64_t>(key);
  if (count >= 0) return count;
  throw CheckpointError("train", {.what = "state " + state.path() + "/" + key,
                                  .expected = "a number from 0 on",
                                  .got = std::to_string(count)});
}

// 0 where an older checkpoint does not contain the counter.
std::int64_t count_if_any(const StateTree& state, const std::string& key) {
  return state.contains(key) ? count_of(state, key) : 0;
}

// The open window; its length is 0 where an older checkpoint does not contain it.
OpenWindow window_of(const StateTree& state) {
  const OpenWindow window{.done = count_if_any(state, "window_done"),
                          .length = count_if_any(state, "window_length")};
  if (!state.contains("window_length") || window.done < window.length) return window;
  throw CheckpointError("train", {.what = "state " + state.path() + "/window_done",
                                  .expected = "less than window_length",
                                  .got = std::to_string(window.done),
                                  .hint = "window_length is " + std::to_string(window.length)});
}

}  // namespace

void FitProgress::count_optimizer_step() {
  ++global_step;
  rank_status().optimizer_step.store(static_cast<std::uint64_t>(global_step), std::memory_order_relaxed);
}

StateTree state_of(const FitProgress& progress) {
  StateTree state;
  state.set("epoch", progress.epoch);
  state.set("batches", progress.batches);
  state.set("batches_before", progress.batches_before);
  state.set("global_step", progress.global_step);
  state.set("batches_that_stepped", progress.batches_that_stepped);
  state.set("samples", progress.samples);
  state.set("evaluation_batches", progress.evaluation_batches);
  state.set("phase", name_of(kPhases, progress.phase));
  state.set("validation_batches", progress.validation.batches);
  state.set("validation_loader", progress.validation.loader);
  state.set("validation_phase", name_of(kEvaluationPhases, progress.validation.phase));
  state.set("num_training_batches", progress.num_training_batches);
  state.set("next_train_reload", progress.next_train_reload);
  state.set("next_val_reload", progress.next_val_reload);
  state.set("steps_before_batch", progress.steps_before_batch);
  state.set("window_done", progress.window.done);
  state.set("window_length", progress.window.length);
  return state;
}

void load_state(FitProgress& progress, const StateTree& state) {
  progress = {.epoch = count_of(state, "epoch"),
              .batches = count_of(state, "batches"),
              .global_step = count_of(state, "global_step"),
              .batches_that_stepped = count_of(state, "batches_that_stepped"),
              .samples = count_of(state, "samples"),
              .evaluation_batches = count_of(state, "evaluation_batches"),
              .phase = phase_of(kPhases, state, "phase"),
              .validation = {.phase = phase_of(kEvaluationPhases, state, "validation_phase"),
                             .loader = count_if_any(state, "validation_loader"),
                             .batches = count_of(state, "validation_batches")},
              .batches_before = count_of(state, "batches_before"),
              .num_training_batches = state.contains("num_training_batches")
                                          ? count_of(state, "num_training_batches")
                                          : progress.num_training_batches,
              .next_train_reload = count_if_any(state, "next_train_reload"),
              .next_val_reload = count_if_any(state, "next_val_reload"),
              .steps_before_batch = count_if_any(state, "steps_before_batch"),
              .window = window_of(state)};
}

}  // namespace lockstep::detail
