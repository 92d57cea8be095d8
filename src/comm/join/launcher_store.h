// The store that `lockstep run` serves to its ranks.
#pragma once

#include <optional>
#include <string>

#include <lockstep/comm/init.h>

namespace lockstep::detail {

/// The store that LOCKSTEP_STORE names, where ranks meet at the place that the launcher has told them: at
/// MASTER_ADDR and MASTER_PORT. Nothing where the program meets elsewhere, or nobody serves one. Blocks until
/// the launcher answers.
/// @throws ConfigError when a variable is malformed; Timeout, CommError when the store cannot be reached
std::optional<Store> launcher_store(const CommOptions& options);

}  // namespace lockstep::detail
