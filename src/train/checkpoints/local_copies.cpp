#include "train/checkpoints/local_copies.h"

#include <algorithm>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/train/callbacks/local_checkpoint.h>

namespace lockstep::detail {

namespace {

LocalCheckpoint* local_checkpoint(const RunSetup& setup) {
  for (const auto& callback : setup.callbacks) {
    if (auto* found = dynamic_cast<LocalCheckpoint*>(callback.get())) return found;
  }
  return nullptr;
}

// Of some files only rank 0 knows.
bool is_saved_everywhere(const RunSetup& setup, const CheckpointSession& checkpoints) {
  const auto words = setup.communicator().all_gather_bytes(checkpoints.save_failure ? "failed" : "");
  return std::ranges::all_of(words, [](const auto& word) { return word.empty(); });
}

}  // namespace

LocalCheckpoints* local_checkpoints(const RunSetup& setup) {
  const auto* callback = local_checkpoint(setup);
  return callback == nullptr ? nullptr : callback->checkpoints();
}

void release_local_checkpoints(const RunSetup& setup) {
  if (auto* callback = local_checkpoint(setup)) callback->release();
}

void forget_local_checkpoints(const RunSetup& setup) {
  if (auto* checkpoints = local_checkpoints(setup)) checkpoints->forget_others();
}

void end_local_checkpoints(const RunSetup& setup, const CheckpointSession& checkpoints) {
  auto* local = local_checkpoints(setup);
  if (local == nullptr) return;
  try {
    local->close();
  } catch (const IoError& error) {
    if (setup.is_global_zero()) log_warning(error.what());
  }
  if (is_saved_everywhere(setup, checkpoints)) local->remove();
}

}  // namespace lockstep::detail
