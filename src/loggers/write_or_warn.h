// The rule of all loggers: what cannot be written never stops training.
#pragma once

#include <filesystem>
#include <functional>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Runs `write`. That a file or folder cannot be written in it is reported, the first time that it happens
/// for `place`. Whether all went well.
LOCKSTEP_API bool write_or_warn(const std::filesystem::path& place, const std::function<void()>& write);

}  // namespace lockstep::detail
