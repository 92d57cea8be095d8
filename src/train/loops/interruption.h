// How a fit ends that a signal has asked to end.
#pragma once

#include <optional>

#include "train/loops/trainer_state.h"
#include "train/stopping/agreement_cadence.h"

namespace lockstep::detail {

/// What a signal asks of a fit; of several that ranks have got, the largest counts.
enum class StopSignal : std::int64_t {
  kNone,
  kTerminate,  ///< save and end
  kRequeue     ///< save, have the job started again, and end
};

/// The fit of a FitLoop. Signals are flags of launch::SignalFlag, which Trainer::fit has.
class Interruption {
 public:
  explicit Interruption(const FitParts& fit);

  /// Behind each micro-batch, and between batches of its validation: on SIGTERM writes last.ckpt, on the
  /// requeue signal of a SLURM job hpc_ckpt_N.ckpt. Then, and where SIGTERM was to make room for another job,
  /// it has SLURM start the job again. Where that is refused for the requeue signal, training goes on.
  /// Collective in some calls.
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
