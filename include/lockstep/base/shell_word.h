// Words of commands that are shown to users or given to shells.
#pragma once

#include <string>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep {

/// `word` as one word for a shell, be it POSIX's, csh or fish: in quotes unless it is plain. No newlines.
LOCKSTEP_API std::string shell_word(std::string_view word);

}  // namespace lockstep
