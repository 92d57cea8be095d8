// JSON from files that somebody else may have written.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace lockstep::detail {

/// Parses `text`, the content of `place`. @throws CheckpointError naming the place when it is no JSON, has
/// one key twice in an object, or is nested more than 64 deep
nlohmann::ordered_json parse_strictly(std::string_view text, const std::string& place);

}  // namespace lockstep::detail
