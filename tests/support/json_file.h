// Files of JSON, as tests read them.
#pragma once

#include <filesystem>

#include <nlohmann/json.hpp>

#include "support/temporary_folder.h"

namespace lockstep::test {

/// What the file holds. @throws nlohmann::json::exception where it is no JSON
inline nlohmann::json json_of(const std::filesystem::path& file) {
  return nlohmann::json::parse(content(file));
}

}  // namespace lockstep::test
