#include "train/checkpoints/local_copies.h"

#include <algorithm>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/train/callbacks/local_checkpoint.h>

namespace lockstep::detail {

namespace {

LocalCheckpoint* local_checkpoint(const RunState& state) {
  for (const auto& callback : state.callbacks) {
    if (auto* found = dynamic_cast<LocalCheckpoint*>(callback.get())) return found;
  }
  return nullptr;
}

// Of some files only rank 0 knows.
bool is_saved_everywhere(const RunState& state) {
  const auto words = state.communicator().all_gather_bytes(state.save_failure ? "failed" : "");
  return std::ranges::all_of(words, [](const auto& word) { return word.empty(); });
}

}  // namespace

LocalCheckpoints* local_checkpoints(const RunState& state) {
  const auto* callback = local_checkpoint(state);
  return callback == nullptr ? nullptr : callback->checkpoints();
}

void release_local_checkpoints(const RunState& state) {
  if (auto* callback = local_checkpoint(state)) callback->release();
}

void forget_local_checkpoints(const RunState& state) {
  if (auto* checkpoints = local_checkpoints(state)) checkpoints->forget_others();
}

void end_local_checkpoints(const RunState& state) {
  auto* checkpoints = local_checkpoints(state);
  if (checkpoints == nullptr) return;
  try {
    checkpoints->close();
  } catch (const IoError& error) {
    if (state.is_global_zero()) log_warning(error.what());
  }
  if (is_saved_everywhere(state)) checkpoints->remove();
}

}  // namespace lockstep::detail
