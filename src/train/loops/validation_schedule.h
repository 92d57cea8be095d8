// After which training batches a fit validates.
#pragma once

#include <cstdint>
#include <optional>

#include "train/loops/trainer_state.h"
#include "train/stopping/agreement_cadence.h"

namespace lockstep::detail {

/// Implements val_check_interval and check_val_every_n_epoch. Borrows its arguments.
class ValidationSchedule {
 public:
  /// `epoch_batches` may be kUnknownLength.
  /// @throws ConfigError when the interval is longer than an epoch, or a fraction of one of unknown length
  ValidationSchedule(const RunSetup& setup, const RunData& data, const FitProgress& progress,
                     std::int64_t epoch_batches);

  /// Whether a validation follows this batch, by the number of batches or by rank 0's clock; a stop of the
  /// run is not considered. `epoch_batches` is the number of batches as far as it is known. Must be called
  /// once per batch, by all ranks.
  bool is_due(std::int64_t batch_idx, std::int64_t epoch_batches);

  /// The same for a batch that the process before has run; false for intervals of time.
  bool was_due(std::int64_t batch_idx, std::int64_t epoch_batches) const;

  /// Whether there is a validation in the current epoch.
  bool in_epoch() const;

  /// Call where the training data has been reloaded. @throws ConfigError as the constructor
  void set_epoch_batches(std::int64_t epoch_batches);

  /// Call at the end of a validation.
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
