// How far a fit has come.
#pragma once

#include <cstdint>

#include <lockstep/base/export.h>
#include <lockstep/state/state_tree.h>

namespace lockstep::detail {

/// Counters of fit.
struct Progress {
  std::int64_t epoch = 0;                 ///< completed epochs
  std::int64_t batches = 0;               ///< completed micro-batches of the epoch that runs, this rank's
  std::int64_t global_step = 0;           ///< optimizer steps
  std::int64_t batches_that_stepped = 0;  ///< the loggers' x-axis in fit
  std::int64_t samples = 0;               ///< training samples, all ranks
  std::int64_t num_training_batches = 0;

  bool operator==(const Progress&) const = default;
};

/// Everything but num_training_batches, which follows from the data. `epoch` and `batches` are the
/// position in the data, too.
LOCKSTEP_API StateTree state_of(const Progress& progress);

/// @throws CheckpointError as the getters of StateTree; nothing has changed then
LOCKSTEP_API void load_state(Progress& progress, const StateTree& state);

}  // namespace lockstep::detail
