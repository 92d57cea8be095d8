#include "train/loops/interruption.h"

#include <chrono>
#include <csignal>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/launch/errors.h>

#include "launch/signals.h"
#include "train/checkpoints/fit_checkpoint.h"
#include "train/checkpoints/job_restart.h"
#include "train/checkpoints/run_checkpoints.h"

namespace lockstep::detail {
namespace {

constexpr std::chrono::milliseconds kBetweenExchanges{500};
constexpr std::int64_t kMostStepsBetween = 100;  // steps may become slow

}  // namespace

namespace fs = std::filesystem;

// The variables of the job are read once, not for every micro-batch.
Interruption::Interruption(const FitParts& fit)
    : fit_(fit), cadence_(AgreementCadence::Rule::kLargest, kBetweenExchanges, kMostStepsBetween) {
  if (const auto* slurm = requeuing_environment(fit.setup)) requeue_signal_ = slurm->requeue_signal();
}

StopSignal Interruption::own_signal() const {
  if (requeue_signal_ && launch::is_flagged(*requeue_signal_)) return StopSignal::kRequeue;
  return launch::is_flagged(SIGTERM) ? StopSignal::kTerminate : StopSignal::kNone;
}

StopSignal Interruption::agreed_signal() {
  const auto& communicator = fit_.setup.communicator();
  if (communicator.size() == 1) return own_signal();
  if (!cadence_.is_time()) return StopSignal::kNone;
  return static_cast<StopSignal>(cadence_.agree(static_cast<std::int64_t>(own_signal()), communicator));
}

void Interruption::heed() {
  if (fit_.checkpoints.are_off) return;
  switch (agreed_signal()) {
    case StopSignal::kNone:
      return;
    case StopSignal::kTerminate:
      terminate();
    case StopSignal::kRequeue:
      requeue();
  }
}

void Interruption::end(const std::string& why, const std::string& saved) const {
  throw Terminated("train", {.what = why + " after epoch " + std::to_string(fit_.progress.epoch) + ", step " +
                                     std::to_string(fit_.progress.global_step),
                             .hint = saved});
}

void Interruption::terminate() {
  launch::lower_flag(SIGTERM);
  fit_.checkpoints.on_interruption();
  if (fit_.setup.options.enable_checkpointing)
    end_local_checkpoints(fit_.setup, fit_.checkpoints);  // what is on disk goes on
  const bool is_saved = fit_.setup.options.enable_checkpointing && !fit_.checkpoints.save_failure;
  const bool is_requeued = is_requeued_for_another_job();
  end(is_requeued ? "this job was preempted and will start again: it has stopped" : "ended by SIGTERM",
      is_saved ? "--resume auto goes on from last.ckpt in " + fit_.setup.run_dir.string()
               : "nothing was saved to go on from");
}

bool Interruption::is_requeued_for_another_job() const {
  if (!requeue_signal_) return false;
  const bool is_requeued = fit_.setup.is_global_zero() && requeue_preempted_job();
  return !fit_.setup.communicator().broadcast_bytes(is_requeued ? "requeued" : "").empty();
}

void Interruption::requeue() {
  launch::lower_flag(*requeue_signal_);
  const auto& communicator = fit_.setup.communicator();
  const bool is_first = fit_.setup.is_global_zero();
  const fs::path folder =
      communicator.broadcast_bytes(is_first ? next_hpc_checkpoint(fit_.setup).string() : "");
  if (!save(folder, is_first ? last_hpc_checkpoint(fit_.setup) : fs::path())) return;
  const auto refusal = communicator.broadcast_bytes(is_first ? requeue_job() : "");
  if (refusal.empty()) {
    end_local_checkpoints(fit_.setup, fit_.checkpoints);
    end("this job will start again: it has stopped", "it goes on from " + folder.string());
  }
  if (is_first) log_warning(refusal + "; the run is saved in " + folder.string() + ", and training goes on");
}

// Waits for checkpoints that are being written. Returns false where this one could not be written: without it
// the job would start from the beginning each time.
bool Interruption::save(const fs::path& folder, const fs::path& replaced) {
  try {
    await_save(fit_);
    save_fit(fit_, folder, {.replaced = replaced}, WriteMode::kInForeground);
    return true;
  } catch (const IoError& error) {
    if (fit_.setup.is_global_zero())
      log_warning(std::string(error.what()) + "; the job is not started again, and training goes on");
    return false;
  }
}

}  // namespace lockstep::detail
