// summary.json: what a run was and what came out of it, for scripts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/run_state.h"

namespace lockstep::detail {

/// The most memory that each rank has had so far, in bytes. Collective, so that all ranks have come this far.
std::vector<std::int64_t> peak_rss_of_all(const RunState& state);

/// Writes RUN_DIR/summary.json on rank 0. `status` is "success", "failed" or "terminated"; `peak_rss`: of the
/// ranks that are known about, in bytes.
void write_summary(const RunState& state, const std::string& status,
                   const std::vector<std::int64_t>& peak_rss);

}  // namespace lockstep::detail
