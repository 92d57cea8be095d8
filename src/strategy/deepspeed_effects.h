// What of DeepSpeed's configuration training does not act on.
#pragma once

#include <string>
#include <vector>

#include <lockstep/deepspeed/config.h>

namespace lockstep::detail {

/// A sentence for each setting that asks for something that has no effect here; empty where all is done.
/// @throws ConfigError for what would change the numbers. Exported for tests
LOCKSTEP_API std::vector<std::string> without_effect(const DeepSpeedConfig& config);

/// Whether gradients of a window add up in another type than `data_types.grad_accum_dtype`, in a run that
/// computes in `computed`. Exported for tests
LOCKSTEP_API bool adds_up_otherwise(const DeepSpeedConfig& config, deepspeed::Dtype computed);

}  // namespace lockstep::detail
