// Text out of a file: in quotes for messages, whether it is UTF-8, and what a file of an unknown format seems
// to be.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// `text` with what a terminal would not show, but obey, replaced.
LOCKSTEP_API std::string printable(std::string_view text);

/// `text` in quotes, as far as it fits in a message, with what a terminal cannot show replaced.
LOCKSTEP_API std::string in_quotes(std::string_view text);

/// Whether `bytes` are UTF-8 as the Unicode standard defines it (its table 3-7): no overlong forms, no
/// surrogates, nothing above U+10FFFF.
LOCKSTEP_API bool is_utf8(std::string_view bytes);

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
