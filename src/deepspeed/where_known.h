// Where a key would be known that is not where it stands.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep::deepspeed {

/// `did you mean KEY?` for a key near to one of `known`, those of the section at `path`; else `KEY belongs to
/// SECTION`, if another section has exactly this one; else nothing.
std::string where_known(std::string_view key, std::span<const std::string> known, const std::string& path);

}  // namespace lockstep::deepspeed
