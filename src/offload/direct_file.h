// Files without the page cache.
#pragma once

#include <filesystem>

#include <lockstep/base/unique_fd.h>

namespace lockstep::offload {

/// Opens `path`, a file of at least kAlignment bytes, for direct reads and writes; empty where its file
/// system does not have them, or wants another alignment.
UniqueFd open_direct(const std::filesystem::path& path);

}  // namespace lockstep::offload
