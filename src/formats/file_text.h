// Text from files: quoting it for messages, checking UTF-8, and recognizing files of other formats.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>

#include "base/printable.h"

namespace lockstep::detail {

/// `text` in quotes, cut to a length that fits in a message, with control characters replaced.
LOCKSTEP_API std::string in_quotes(std::string_view text);

/// Whether `bytes` are UTF-8 as the Unicode standard defines it (its table 3-7): no overlong forms, no
/// surrogates, nothing above U+10FFFF.
LOCKSTEP_API bool is_utf8(std::string_view bytes);

/// `bytes` as valid UTF-8: invalid bytes are replaced by U+FFFD.
LOCKSTEP_API std::string as_utf8(const std::string& bytes);

/// The texts for `got` and `hint` of an error about a file of another format.
struct ForeignFile {
  std::string_view what;  ///< what it is: "a file compressed with xz"
  std::string_view hint;  ///< what to do: "decompress it first, with unxz"
};

/// How much of a file foreign_file() looks at.
inline constexpr std::size_t kForeignStartBytes = 64;

/// The format of a file that begins with `start`; nothing where it is unknown.
LOCKSTEP_API std::optional<ForeignFile> foreign_file(std::string_view start);

}  // namespace lockstep::detail
