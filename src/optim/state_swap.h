// Where an optimizer keeps state that is not to be in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "offload/swap_folder.h"
#include "offload/swap_options.h"

namespace lockstep {

struct StateSwap {
  std::shared_ptr<const offload::SwapFolder> folder;  ///< for its files
  offload::SwapOptions options = {};                  ///< how they are read and written
  std::int64_t tile_elements = 1 << 20;  ///< of parameters whose state is in memory at once; a larger one has
                                         ///< a tile of its own
  std::size_t buffers = 3;               ///< tiles in memory: one is stepped, others are read and written
  double share = 1.0;                    ///< of the elements, the last ones; the others' state is in memory
  int ranks = 1;                         ///< that keep about as much on the same disk
  std::uint64_t other_bytes = 0;         ///< that each of them has yet to put there
};

}  // namespace lockstep
