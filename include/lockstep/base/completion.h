// What makes a shell complete the flags of a program, and what they accept.
#pragma once

#include <span>
#include <string>

#include <lockstep/base/command_line.h>
#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>
#include <lockstep/base/options.h>

namespace lockstep {

/// A shell that completion_script() writes for.
enum class Shell { kBash, kZsh, kFish };

LOCKSTEP_API std::span<const OptionName<Shell>> option_names(Shell);

/// A script that completes the program's verbs, its flags (each key of `tree`), the names that they accept
/// and, where they take a path, files: `source <(PROGRAM --completion bash)`.
LOCKSTEP_API std::string completion_script(const OptionTree& tree, const CommandLineInfo& info, Shell shell);

}  // namespace lockstep
