// Behind which batches of training a fit validates.
#pragma once

#include <cstdint>
#include <optional>

#include "train/loops/trainer_state.h"
#include "train/stopping/agreement_cadence.h"

namespace lockstep::detail {

/// What val_check_interval and check_val_every_n_epoch come to. Borrows its arguments.
class ValidationSchedule {
 public:
  /// `epoch_batches` may be kUnknownLength.
  /// @throws ConfigError when the interval is longer than an epoch, or a fraction of one of unknown length
  ValidationSchedule(const RunSetup& setup, const RunData& data, const FitProgress& progress,
                     std::int64_t epoch_batches);

  /// Whether a validation comes behind this batch: by the batches that are done, or by rank 0's clock; not by
  /// what may still stop the run. `epoch_batches` is what is known now. Asked once per batch, by all ranks.
  bool is_due(std::int64_t batch_idx, std::int64_t epoch_batches);

  /// The same for a batch that another process ran: of time nothing is known.
  bool was_due(std::int64_t batch_idx, std::int64_t epoch_batches) const;

  /// Whether the epoch that runs validates at all.
  bool in_epoch() const;

  /// The training data are others now. @throws ConfigError as the constructor
  void set_epoch_batches(std::int64_t epoch_batches);

  /// A validation has ended.
  void restart();

 private:
  void check(std::int64_t epoch_batches) const;

  const RunSetup& setup_;
  const RunData& data_;
  const FitProgress& progress_;
  std::int64_t batches_ = 1;          // from one validation to the next
  std::optional<AgreedClock> clock_;  // where time says when
};

}  // namespace lockstep::detail
