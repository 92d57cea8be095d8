// How many descriptors this process may have.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/base/error.h>
#include <lockstep/base/export.h>

namespace lockstep {

/// Sees to it that `more` descriptors can be opened beside those that are: raises the limit as far as that
/// takes and the system allows. `purpose` is for the message, such as "2 ranks".
/// @throws ConfigError naming the limit and how many are needed
LOCKSTEP_API void require_open_files(std::int64_t more, const std::string& purpose);

/// The error for a descriptor that could not be opened because of the limit.
LOCKSTEP_API ConfigError too_many_open_files(const std::string& what);

}  // namespace lockstep
