// What a file is that is none of those that are read, as far as its first bytes tell.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Of `got` and `hint` of an error.
struct ForeignFile {
  std::string_view what;  ///< what it is: "a file compressed with xz"
  std::string_view hint;  ///< what to do: "decompress it first, with unxz"
};

/// How much of a file foreign_file() looks at.
inline constexpr std::size_t kForeignStartBytes = 64;

/// What begins with `start`; nothing where it is not known.
LOCKSTEP_API std::optional<ForeignFile> foreign_file(std::string_view start);

}  // namespace lockstep::detail
