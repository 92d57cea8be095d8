// Ends a fit on a signal: SIGTERM, or the signal by which SLURM announces that a job's time is over.
#pragma once

#include <optional>

#include "train/loops/trainer_state.h"
#include "train/stopping/agreement_cadence.h"

namespace lockstep::detail {

/// The request that a signal makes. Where ranks have got different signals, the largest value counts.
enum class StopSignal : std::int64_t {
  kNone,
  kTerminate,  ///< save and end
  kRequeue     ///< save, have the job started again, and end
};

/// Checks the signals for a FitLoop. Trainer::fit installs the launch::SignalFlag handlers.
class Interruption {
 public:
  explicit Interruption(const FitParts& fit);

  /// Called after each micro-batch, and between the batches of its validation. On SIGTERM it writes
  /// last.ckpt; on the requeue signal of a SLURM job it writes hpc_ckpt_N.ckpt. It then asks SLURM to start
  /// the job again, on SIGTERM only where the job is preempted. Where SLURM refuses that for the requeue
  /// signal, training goes on. Collective in some calls.
  /// @throws Terminated when the run is to end here, on all ranks alike
  void heed();

 private:
  StopSignal own_signal() const;
  StopSignal agreed_signal();
  [[noreturn]] void terminate();
  bool is_requeued_for_another_job() const;
  void requeue();
  bool save(const std::filesystem::path& folder, const std::filesystem::path& replaced);
  [[noreturn]] void end(const std::string& why, const std::string& saved) const;

  const FitParts& fit_;
  std::optional<int> requeue_signal_;  ///< of a job that SLURM may start again
  AgreementCadence cadence_;
};

}  // namespace lockstep::detail
