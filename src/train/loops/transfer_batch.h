// A batch on its way from the loader to the step.
#pragma once

#include "train/run_state.h"

namespace lockstep::detail {

/// `batch` as the transfer hooks of the data module and the module leave it. An empty one passes none.
AnyBatch transferred(RunState& state, AnyBatch batch, std::int64_t batch_idx,
                     std::int64_t dataloader_idx = 0);

}  // namespace lockstep::detail
