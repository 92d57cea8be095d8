// Interrupted fits: how a signal ends a fit (SIGTERM, or the one by which SLURM announces that a job's time
// is over), how SLURM is asked to restart its job, and whether the current job was restarted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "train/checkpoints/fit_checkpoint.h"
#include "train/options/run_setup.h"
#include "train/stopping/agreement_cadence.h"

namespace lockstep::detail {

struct JobRestart {
  bool is_restarted = false;  ///< in the place of ranks that have failed, or of others on lost nodes
  /// Checkpoints that are older belong to another job; empty where it is unknown.
  std::optional<std::filesystem::file_time_type> began = {};
};

/// Whether the job was restarted, with the same answer on all ranks, some of which may have been started by a
/// newer launcher. Must be called once after each start, before a checkpoint is written: in a job of SLURM or
/// torchrun rank 0 records when the job begins. Collective, blocking.
/// @throws IoError or, on the other ranks, CheckpointError where the begin of the job cannot be recorded
JobRestart agree_on_restart(const RunSetup& setup);

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
