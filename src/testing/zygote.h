// The copy of the test program from which ranks are forked, as seen from the test.
#pragma once

#include "testing/rank_job.h"

namespace lockstep::testing {

/// Has the zygote run `job`. Blocks; one call at a time, others wait.
/// @throws ConfigError without start_zygote(); Error when the zygote is gone
JobReport run_in_zygote(const RankJob& job);

}  // namespace lockstep::testing
