// Folders of runs: version_0, version_1, ...
#pragma once

#include <cstdint>
#include <filesystem>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Makes `parent`/version_N, with N one more than the largest there is, from 0, and gives N. Processes that
/// do so at the same time get different numbers. Blocking.
/// @throws IoError naming the folder when it cannot be made
LOCKSTEP_API std::int64_t claim_version(const std::filesystem::path& parent);

/// create_directories. @throws IoError naming the folder when it cannot be made
LOCKSTEP_API void make_folder(const std::filesystem::path& folder);

}  // namespace lockstep::detail
