#include "train/local_copies.h"

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/cluster/slurm_environment.h>
#include <lockstep/train/callbacks/local_checkpoint.h>

namespace lockstep::detail {

namespace {

LocalCheckpoint* local_checkpoint(const RunState& state) {
  for (const auto& callback : state.callbacks) {
    if (auto* found = dynamic_cast<LocalCheckpoint*>(callback.get())) return found;
  }
  return nullptr;
}

}  // namespace

LocalCheckpoints* local_checkpoints(const RunState& state) {
  const auto* callback = local_checkpoint(state);
  return callback == nullptr ? nullptr : callback->checkpoints();
}

void release_local_checkpoints(const RunState& state) {
  if (auto* callback = local_checkpoint(state)) callback->release();
}

bool is_started_anew() {
  return env::get_int("TORCHELASTIC_RESTART_COUNT", 0) > 0 || SlurmEnvironment::restart_count() > 0;
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
  if (!state.save_failure) checkpoints->remove();
}

}  // namespace lockstep::detail
