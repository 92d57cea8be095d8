// summary.json: what a run was and what came out of it, for scripts.
#pragma once

#include <string>

#include "train/run_state.h"

namespace lockstep::detail {

/// Writes RUN_DIR/summary.json on rank 0. `status` is "success" or "failed"; with "success" it is
/// Collective, since it reports every rank's memory.
void write_summary(const RunState& state, const std::string& status);

}  // namespace lockstep::detail
