// The position of a rank in its data: all that is needed to continue from there, with any number of worker
// threads. `loader.stream(spec, position.epoch, position.batches)` gives the remaining batches.
#pragma once

#include <cstdint>

#include <lockstep/base/export.h>
#include <lockstep/state/state_tree.h>

namespace lockstep {

/// Counted on one rank.
struct DataPosition {
  std::int64_t epoch = 0;    ///< the current epoch, from 0
  std::int64_t batches = 0;  ///< batches of that epoch that were used

  bool operator==(const DataPosition&) const = default;
};

LOCKSTEP_API StateTree state_of(const DataPosition& position);

/// @throws CheckpointError naming what is missing, of another kind or negative; nothing has changed then
LOCKSTEP_API void load_state(DataPosition& position, const StateTree& state);

}  // namespace lockstep
