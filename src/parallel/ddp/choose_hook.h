// The comm hook that options ask for.
#pragma once

#include <span>
#include <string>

#include <lockstep/parallel/ddp/ddp.h>

namespace lockstep {

std::span<const OptionName<DdpCommHook>> option_names(DdpCommHook);
std::span<const OptionName<DdpCommWrapper>> option_names(DdpCommWrapper);

namespace detail {

/// One's own, or the built-in one, with its wrapper around it. @throws ConfigError for PowerSGD's options
CommHook make_comm_hook(const Ddp& options);

/// "allreduce", "fp16_compress", ..., or "custom"; with the wrapper, if any: "fp16_compress(powerSGD)".
std::string name_of_comm_hook(const Ddp& options);

}  // namespace detail
}  // namespace lockstep
