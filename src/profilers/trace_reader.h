// Traces event by event, so that their size does not matter.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include <nlohmann/json.hpp>

namespace lockstep::detail {

/// Calls `take` for each event of `file`, which is in Chrome's format, and keeps none; returns the rest of
/// the file, an object. Blocking. @throws DataError when it is no trace; IoError when it cannot be read
nlohmann::json read_trace(const std::filesystem::path& file,
                          const std::function<void(const nlohmann::json&)>& take);

/// @throws DataError: `file` is no trace, because of `got`
[[noreturn]] void refuse_trace(const std::filesystem::path& file, const std::string& got);

}  // namespace lockstep::detail
