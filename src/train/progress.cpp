#include "train/progress.h"

namespace lockstep::detail {

StateTree state_of(const Progress& progress) {
  StateTree state;
  state.set("epoch", progress.epoch);
  state.set("batches", progress.batches);
  state.set("global_step", progress.global_step);
  state.set("batches_that_stepped", progress.batches_that_stepped);
  state.set("samples", progress.samples);
  return state;
}

void load_state(Progress& progress, const StateTree& state) {
  progress = {.epoch = state.get<std::int64_t>("epoch"),
              .batches = state.get<std::int64_t>("batches"),
              .global_step = state.get<std::int64_t>("global_step"),
              .batches_that_stepped = state.get<std::int64_t>("batches_that_stepped"),
              .samples = state.get<std::int64_t>("samples"),
              .num_training_batches = progress.num_training_batches};
}

}  // namespace lockstep::detail
