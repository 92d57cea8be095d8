// What all ranks do alike: steps that all succeed in, or none, and the choice of a folder.
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

/// The checkpoint that `folder` means on rank 0, as tagged_folder() says: all ranks get that one, also while
/// another job writes `latest` anew. Collective, blocking.
/// @throws on every rank: on rank 0 as tagged_folder(), on others CheckpointError with the same text
std::filesystem::path agreed_folder(const Communicator& communicator, const std::filesystem::path& folder,
                                    const std::string& tag = {});

}  // namespace lockstep::detail
