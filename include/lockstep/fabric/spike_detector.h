// SpikeDetector: ends a training whose loss jumps, and says which batches to leave out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>
#include <lockstep/base/option_visitor.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/metrics/monitor_mode.h>
#include <lockstep/state/state_tree.h>

namespace lockstep {

/// Names, meaning and defaults are Lightning's. A loss that got worse is a spike where it is both `atol` and
/// `rtol` times the running mean away from that mean, or more; one of them that is not given is no condition.
struct SpikeDetectionOptions {
  EnumOption<MonitorMode> mode = MonitorMode::kMin;  ///< whether a jump up or down is bad
  std::size_t window = 10;                           ///< losses in the running mean, >= 1
  std::int64_t warmup = 1;                           ///< batches of an epoch that are not judged
  std::optional<double> atol = {};                   ///< distance from the running mean
  std::optional<double> rtol = 2.0;                  ///< the same, as a multiple of it
  /// The file that names the batches to leave out, or, unless it ends in .json, the folder of
  /// skip_batches.json. Empty: the run's folder, or without a Trainer the working directory.
  std::filesystem::path exclude_batches_path = {};
  bool finite_only = true;  ///< NaN and infinity are spikes, too; false: they are passed over
};

LOCKSTEP_API void describe(OptionVisitor& visitor, SpikeDetectionOptions& options);

/// The loss of a batch has jumped on one of the ranks; all ranks throw it.
class LOCKSTEP_API TrainingSpike : public Error {
 public:
  /// `batch_idx` is the batch whose loss jumped.
  TrainingSpike(std::int64_t batch_idx, const ErrorParts& parts);
  ~TrainingSpike() override;

  /// The batch in which it happened.
  std::int64_t batch_idx() const { return batch_idx_; }

 private:
  std::int64_t batch_idx_;
};

/// Give it each batch's loss. What is good on this rank is what came before on this rank; a spike of one rank
/// is a spike of all. Lightning's SpikeDetection, for loops of one's own.
class LOCKSTEP_API SpikeDetector {
 public:
  /// @throws ConfigError naming the option that is out of range
  explicit SpikeDetector(SpikeDetectionOptions options = {});

  /// Judges the `loss` of batch `batch_idx`, counted from 0 in each epoch. The ranks of `communicator`
  /// exchange one small tensor and no more. Collective, blocking.
  /// @throws TrainingSpike on all ranks; the file then names this batch and the one before, which may have
  ///   spoilt the weights; IoError on rank 0 when it cannot be written
  void observe(double loss, std::int64_t batch_idx, const Communicator& communicator);

  /// The batches of all spikes, also of those in the run that this one goes on from.
  const std::vector<std::int64_t>& bad_batches() const { return bad_batches_; }
  /// The file that names them.
  const std::filesystem::path& path() const { return path_; }

  /// What it must remember to go on in another process.
  StateTree state() const;
  /// Goes on from what state() gave.
  void load_state(const StateTree& state);

 private:
  bool is_spike(double loss) const;
  bool is_better(double loss) const;
  double running_mean() const;
  [[noreturn]] void report(double loss, std::int64_t batch_idx, const Communicator& communicator);

  SpikeDetectionOptions options_;
  std::filesystem::path path_;
  double last_loss_ = 0;
  std::deque<double> window_;
  std::vector<std::int64_t> bad_batches_;
};

}  // namespace lockstep
