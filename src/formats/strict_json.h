// Strict parsing of JSON from untrusted files.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <lockstep/base/export.h>
#include <nlohmann/json.hpp>

namespace lockstep::detail {

/// How many objects and arrays may be open at once.
inline constexpr std::size_t kDeepestJson = 64;

/// Parses `text`, the content of `place`, in time n log n. @throws CheckpointError naming the place when it
/// is no JSON, has one key twice in an object, or is nested more than kDeepestJson deep
LOCKSTEP_API nlohmann::ordered_json parse_strictly(std::string_view text, const std::string& place);

/// Adds a member to an object that has none of that key. (operator[] looks through all of them.)
inline void add_member(nlohmann::ordered_json& object, std::string key, nlohmann::ordered_json value) {
  object.get_ref<nlohmann::ordered_json::object_t&>().push_back({std::move(key), std::move(value)});
}

}  // namespace lockstep::detail
