// What is said of a file that cannot be opened or read, whoever says it.
#pragma once

#include <filesystem>
#include <string>

#include <lockstep/base/error.h>
#include <lockstep/base/export.h>

namespace lockstep::detail {

/// "'FILE' cannot be read; got REASON": for IoError, or for DataError where the file is one of a data set.
/// `reason` is system_error_text(errno), or what is there instead of a file; empty: nobody knows.
LOCKSTEP_API ErrorParts unreadable_file(const std::filesystem::path& file, const std::string& reason = {});

}  // namespace lockstep::detail
