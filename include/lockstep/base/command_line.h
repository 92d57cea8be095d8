// The command line of a program whose options are in an OptionTree, and its completion in shells.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/option_codec.h>
#include <lockstep/base/option_type.h>
#include <lockstep/base/options.h>

namespace lockstep {

/// What parse_command_line needs to know about the program.
struct CommandLineInfo {
  std::string program = {};             ///< as in "Usage: PROGRAM"
  std::string description = {};         ///< one sentence for --help
  std::vector<std::string> verbs = {};  ///< accepted first words; empty: the program takes none
  std::string version = {};             ///< for --version; empty: no such flag
  /// Roots below which an unknown LOCKSTEP_ROOT_* variable is an error.
  std::vector<std::string> strict_environment_roots = {"trainer"};
  /// Roots whose options are known only later: flags below them are taken as they are (a flag
  /// without a value means true) and are checked when somebody applies them.
  std::vector<std::string> open_roots = {};
  /// What to write instead of an unknown flag, given without its dashes, in a sentence without its end;
  /// empty, or no function: the nearest known one is named.
  std::function<std::string(std::string_view key)> instead_of = {};
};

/// What a user asked for.
struct CommandLine {
  std::string verb = {};                          ///< empty: none was given
  std::vector<Assignment> assignments = {};       ///< of files, environment and flags, in this order
  bool print_config = false;                      ///< print OptionTree::to_yaml() after applying, and stop
  std::optional<std::string> text_to_print = {};  ///< --help and the like: print this and stop
};

/// Reads flags, the YAML files of -c/--config and the environment. Each key of `tree` is a flag:
/// `--a.b VALUE` or `--a.b=VALUE`, a bool also bare; flags of lists repeat or take commas. Keys and
/// values in files are checked by OptionTree::apply, not here. `tree` is not changed.
/// @throws ConfigError for an unknown flag or word, a missing value or an unreadable file
LOCKSTEP_API CommandLine parse_command_line(int argc, const char* const* argv, const OptionTree& tree,
                                            const CommandLineInfo& info);

/// The text of --help: usage, then every option with type, default, range and the choice it is for.
LOCKSTEP_API std::string help_text(const OptionTree& tree, const CommandLineInfo& info);

/// A shell that completion_script() writes for.
enum class Shell { kBash, kZsh, kFish };

LOCKSTEP_API std::span<const OptionName<Shell>> option_names(Shell);

/// A script that completes the program's verbs, its flags (each key of `tree`), the names that they accept
/// and, where they take a path, files: `source <(PROGRAM --completion bash)`.
LOCKSTEP_API std::string completion_script(const OptionTree& tree, const CommandLineInfo& info, Shell shell);

}  // namespace lockstep
