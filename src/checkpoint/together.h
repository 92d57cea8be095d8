// Steps that all ranks succeed in, or none.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include <lockstep/comm/communicator.h>

namespace lockstep::detail {

/// Does this rank's `step` of writing the checkpoint `folder`, and returns what that of rank 0 gave.
/// Collective, blocking.
/// @throws IoError, the same on all ranks, naming the first rank whose step threw, and what
std::string together(const Communicator& communicator, const std::filesystem::path& folder,
                     const std::function<std::string()>& step);

}  // namespace lockstep::detail
