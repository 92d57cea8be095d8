// The search for the largest batch size that fits, without the trial runs.
#pragma once

#include <functional>

#include <lockstep/train/tuner_options.h>

namespace lockstep::detail {

/// The outcome of a trial of a batch size.
enum class TrialOutcome {
  kOutOfMemory,
  kFits,
  kHoldsAll  ///< it fits, and there are no more samples than that
};

/// The size that `options` ask for, found by calling `run_trial` with sizes up to max_val.
/// @throws ConfigError when not even one sample fits; what `run_trial` throws
LOCKSTEP_API std::int64_t search_batch_size(const ScaleBatchSizeOptions& options,
                                            const std::function<TrialOutcome(std::int64_t)>& run_trial);

}  // namespace lockstep::detail
