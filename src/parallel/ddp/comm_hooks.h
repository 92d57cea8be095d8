// The comm hook that options ask for.
#pragma once

#include <memory>
#include <string>

#include <lockstep/parallel/ddp/ddp.h>

#include "parallel/ddp/power_sgd.h"

namespace lockstep::detail {

/// What ddp_comm_hook powerSGD will keep from step to step; null for other hooks.
/// @throws ConfigError for PowerSGD's options
std::shared_ptr<PowerSgdState> make_power_sgd_state(const Ddp& options);

/// One's own, or the built-in one, with its wrapper around it.
CommHook make_comm_hook(const Ddp& options, const std::shared_ptr<PowerSgdState>& power_sgd);

/// "allreduce", "fp16_compress", ..., or "custom"; with the wrapper, if any: "fp16_compress(powerSGD)".
std::string name_of_comm_hook(const Ddp& options);

}  // namespace lockstep::detail
