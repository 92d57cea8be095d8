#include "train/data_place.h"

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

namespace lockstep::detail {
namespace {

std::int64_t window_start(std::int64_t batches, std::int64_t length) { return batches - batches % length; }

void check_data_set(const RunState& state, const StateTree& place) {
  const auto saved = place.get<std::int64_t>("num_samples");
  const auto now = state.train_loader->num_samples();
  if (saved == now) return;
  throw CheckpointError("train", {.what = "the training data are not those of the checkpoint",
                                  .expected = std::to_string(saved) + " samples",
                                  .got = std::to_string(now)});
}

// The order of samples follows from the seed.
void adopt_seed(RunState& state, const StateTree& place) {
  const auto saved = static_cast<std::uint64_t>(place.get<std::int64_t>("seed"));
  auto& seed = state.options.run.seed_everything;
  if (seed && *seed != saved) {
    log_warning("seed_everything is " + std::to_string(*seed) + ", the checkpoint's was " +
                std::to_string(saved) + ": samples come in the checkpoint's order");
  }
  seed = saved;
}

void begin_window_anew(Progress& progress, std::int64_t length) {
  const auto start = window_start(progress.batches, length);
  if (start == progress.batches) return;
  progress.batches = start;
  progress.phase = FitPhase::kBatches;
}

}  // namespace

bool is_inside_window(const RunState& state) {
  const auto& progress = state.progress;
  return progress.batches != progress.num_training_batches &&
         progress.batches != window_start(progress.batches, state.options.accumulate_grad_batches);
}

StateTree data_place_of(const RunState& state) {
  StateTree place;
  place.set("num_samples", state.train_loader->num_samples());
  place.set("batch_size", state.train_loader->batch_size());
  place.set("world_size", std::int64_t{state.communicator().size()});
  place.set("accumulate_grad_batches", std::int64_t{state.options.accumulate_grad_batches});
  place.set("seed", static_cast<std::int64_t>(state.options.run.seed_everything.value_or(0)));
  return place;
}

void adopt_data_place(RunState& state, const StateTree& place) {
  check_data_set(state, place);
  adopt_seed(state, place);
  auto& progress = state.progress;
  const auto world = std::int64_t{state.communicator().size()};
  const auto batch = world * state.train_loader->batch_size();
  const auto saved_batch = place.get<std::int64_t>("world_size") * place.get<std::int64_t>("batch_size");
  const bool same_world = world == place.get<std::int64_t>("world_size") && batch == saved_batch;
  if (same_world || progress.batches == 0) return;
  begin_window_anew(progress, place.get<std::int64_t>("accumulate_grad_batches"));
  progress.validation = {};
  const auto samples = progress.batches * saved_batch;
  if (samples % batch == 0) {
    progress.batches = samples / batch;
    return;
  }
  throw CheckpointError(
      "train",
      {.what = "no batch begins where the checkpoint was taken, at sample " + std::to_string(samples),
       .expected = "a batch of all ranks that divides it",
       .got = std::to_string(world) + " ranks of " + std::to_string(batch / world) + " samples",
       .hint = "the checkpoint's batch was " + std::to_string(saved_batch) + " samples; take a divisor"});
}

StateTree own_of(const RunState& state, const Checkpoint& checkpoint) {
  return checkpoint.own(state.communicator().rank() % checkpoint.info().world_size);
}

}  // namespace lockstep::detail
