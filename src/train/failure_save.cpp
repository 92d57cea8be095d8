#include "train/failure_save.h"

#include <algorithm>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/launch/errors.h>

#include "train/fit_checkpoint.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

// Before its first batch a fit has nothing that its beginning had not.
bool has_begun(const RunState& state) {
  return state.stage == Stage::kFit && state.progress.num_training_batches > 0;
}

// Time is short for a run that a signal ends, and it has saved already, where checkpoints are wanted.
bool is_saved(const RunState& state) {
  return dynamic_cast<const Terminated*>(state.failure) != nullptr && state.options.enable_checkpointing &&
         !state.save_failure;
}

// A batch that was begun is not half done. One whose optimizer has not stepped is trained on again, with the
// others of its window, of whose gradients nobody knows what they hold.
Progress place_to_go_on(const RunState& state) {
  auto progress = state.progress;
  if (progress.phase != FitPhase::kInBatch) return progress;
  if (progress.global_step != progress.steps_before_batch) {
    ++progress.batches;
    progress.phase = FitPhase::kBatchEnd;
  } else {
    progress.batches -= std::min(progress.batches, progress.window.done);
    progress.phase = FitPhase::kBatches;
  }
  progress.window = {};
  return progress;
}

// Equal on ranks whose parts of a checkpoint fit together.
std::string place_text(const Progress& progress) {
  return std::to_string(progress.epoch) + '/' + std::to_string(progress.batches) + '/' +
         std::to_string(progress.global_step) + '/' + std::to_string(static_cast<int>(progress.phase)) + '/' +
         std::to_string(static_cast<int>(progress.validation.phase)) + '/' +
         std::to_string(progress.validation.loader) + '/' + std::to_string(progress.validation.batches);
}

const CommError* comm_error(const RunState& state) { return dynamic_cast<const CommError*>(state.failure); }

bool all_are_here(RunState& state, std::chrono::milliseconds deadline) {
  if (state.communicator().size() == 1) return true;
  if (comm_error(state) != nullptr || !state.failure_meeting) return false;
  return state.failure_meeting->is_complete(place_text(place_to_go_on(state)), deadline);
}

// Of several that have lost another the first; a rank that failed by itself cannot know of others.
bool writes_weights(const RunState& state) {
  const auto* error = comm_error(state);
  if (error == nullptr) return true;
  int writer = 0;
  while (std::ranges::count(error->ranks(), writer) > 0) ++writer;
  const bool exists = writer < state.communicator().size();
  return state.environment->global_rank() == (exists ? writer : 0);
}

// Puts things back: what comes after a failure reports where it happened.
class AtPlace {
 public:
  AtPlace(RunState& state, const Progress& place)
      : state_(state),
        progress_(std::exchange(state.progress, place)),
        async_checkpoint_(std::exchange(state.options.async_checkpoint, false)) {}
  ~AtPlace() {
    state_.progress = progress_;
    state_.options.async_checkpoint = async_checkpoint_;
  }
  AtPlace(const AtPlace&) = delete;
  AtPlace& operator=(const AtPlace&) = delete;

 private:
  RunState& state_;
  Progress progress_;
  bool async_checkpoint_;
};

void save_run(RunState& state, const fs::path& folder, const SaveRequest& request) {
  const fs::path agreed = state.communicator().broadcast_bytes(folder.string(), 0);
  const AtPlace scope(state, place_to_go_on(state));
  save_fit(state, agreed, request);
  if (state.is_global_zero()) log_info("after the failure, the run was saved to " + agreed.string());
}

void save_weights(const RunState& state, const fs::path& folder) {
  const CheckpointInfo info{.epoch = state.progress.epoch,
                            .global_step = state.progress.global_step,
                            .strategy = std::string(state.strategy->name()),
                            .mesh = {{"replicate", 1}}};
  state.checkpoint_io->save(folder, {.shared = weights_of(state)}, info, Communicator());
  log_warning("not all ranks failed together: the run cannot be saved, but the weights of step " +
              std::to_string(state.progress.global_step) + " are in " + folder.string());
}

SavedAfterFailure save_what_there_is(RunState& state, const fs::path& folder, const SaveRequest& request,
                                     std::chrono::milliseconds deadline) {
  if (all_are_here(state, deadline)) {
    save_run(state, folder, request);
    return request.weights_only ? SavedAfterFailure::kWeights : SavedAfterFailure::kRun;
  }
  if (state.strategy->shards_gradients()) {
    log_warning("not all ranks failed together: nothing was saved, as each has a part of the model");
    return SavedAfterFailure::kNothing;
  }
  if (!writes_weights(state)) return SavedAfterFailure::kNothing;
  save_weights(state, weights_beside(folder));
  return SavedAfterFailure::kWeights;
}

}  // namespace

fs::path weights_beside(const fs::path& folder) {
  auto beside = folder;
  beside.replace_filename(folder.stem().string() + "-weights" + folder.extension().string());
  return beside;
}

SavedAfterFailure save_after_failure(RunState& state, fs::path folder, const SaveRequest& request,
                                     std::chrono::milliseconds deadline) try {
  if (state.failure == nullptr || !has_begun(state) || is_saved(state)) return SavedAfterFailure::kNothing;
  return save_what_there_is(state, folder, request, deadline);
} catch (const std::exception& error) {
  log_warning("after the failure, " + folder.string() + " could not be saved: " + error.what());
  return SavedAfterFailure::kNothing;
}

}  // namespace lockstep::detail
