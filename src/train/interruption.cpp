#include "train/interruption.h"

#include <csignal>
#include <utility>

#include <c10/util/ScopeExit.h>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/launch/errors.h>

#include "launch/signal_flag.h"
#include "train/fit_checkpoint.h"
#include "train/job_checkpoints.h"
#include "train/local_copies.h"
#include "train/requeue_job.h"

namespace lockstep::detail {

namespace fs = std::filesystem;

// Reads the variables of the job once: asking each time would cost every micro-batch a few of them.
Interruption::Interruption(RunState& state) : state_(state) {
  if (const auto* slurm = requeuing_environment(state)) requeue_signal_ = slurm->requeue_signal();
}

StopSignal Interruption::own_wish() const {
  if (requeue_signal_ && launch::is_flagged(*requeue_signal_)) return StopSignal::kRequeue;
  return launch::is_flagged(SIGTERM) ? StopSignal::kTerminate : StopSignal::kNone;
}

void Interruption::heed() {
  if (state_.is_trial) return;
  switch (vote_.take(own_wish(), state_.communicator())) {
    case StopSignal::kNone:
      return;
    case StopSignal::kTerminate:
      terminate();
    case StopSignal::kRequeue:
      requeue();
  }
}

void Interruption::end(const std::string& why, const std::string& saved) const {
  throw Terminated("train", {.what = why + " after epoch " + std::to_string(state_.progress.epoch) +
                                     ", step " + std::to_string(state_.progress.global_step),
                             .hint = saved});
}

void Interruption::terminate() {
  launch::lower_flag(SIGTERM);
  state_.on_interruption();
  if (state_.options.enable_checkpointing) end_local_checkpoints(state_);  // what is on disk goes on
  const bool is_saved = state_.options.enable_checkpointing && !state_.save_failure;
  const bool is_requeued = is_requeued_for_another_job();
  end(is_requeued ? "this job makes room for another one, and will start again: it has stopped"
                  : "ended by SIGTERM",
      is_saved ? "--resume auto goes on from last.ckpt in " + state_.run_dir.string()
               : "nothing was saved to go on from");
}

bool Interruption::is_requeued_for_another_job() const {
  if (!requeue_signal_) return false;
  const bool is_requeued = state_.is_global_zero() && requeue_preempted_job();
  return !state_.communicator().broadcast_bytes(is_requeued ? "requeued" : "").empty();
}

void Interruption::requeue() {
  launch::lower_flag(*requeue_signal_);
  const auto& communicator = state_.communicator();
  const bool is_first = state_.is_global_zero();
  const fs::path folder = communicator.broadcast_bytes(is_first ? next_hpc_checkpoint(state_).string() : "");
  if (!save(folder, is_first ? last_hpc_checkpoint(state_) : fs::path())) return;
  const auto refusal = communicator.broadcast_bytes(is_first ? requeue_job() : "");
  if (refusal.empty()) {
    end_local_checkpoints(state_);
    end("this job will start again: it has stopped", "it goes on from " + folder.string());
  }
  if (is_first) log_warning(refusal + "; the run is saved in " + folder.string() + ", and training goes on");
}

// Whatever else is being written comes first. Without a checkpoint a job would begin again and again.
bool Interruption::save(const fs::path& folder, const fs::path& replaced) {
  const bool is_async = std::exchange(state_.options.async_checkpoint, false);
  const auto restored = c10::make_scope_exit([&] { state_.options.async_checkpoint = is_async; });
  try {
    await_save(state_);
    save_fit(state_, folder, {.replaced = replaced});
    return true;
  } catch (const IoError& error) {
    if (state_.is_global_zero())
      log_warning(std::string(error.what()) + "; the job is not started again, and training goes on");
    return false;
  }
}

}  // namespace lockstep::detail
