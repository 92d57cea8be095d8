// Where the repository and the build folder of these tests are.
#pragma once

#include <filesystem>
#include <string_view>

namespace lockstep::test {

/// The file `name` of the repository.
std::filesystem::path in_repository(std::string_view name);

/// The file `name` of the build folder.
std::filesystem::path in_build(std::string_view name);

}  // namespace lockstep::test
