// Where assignments come from, besides flags (command_line.h): YAML files and the environment.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/option_text.h>
#include <lockstep/base/options.h>

namespace lockstep {

/// The assignments in a YAML file: nested maps become dotted keys. An empty file gives none.
/// Anchors work; merge keys (`<<`), several documents, duplicate keys and lists of lists are refused.
/// @throws ConfigError with file:line:column when it is malformed, and when it cannot be read
LOCKSTEP_API std::vector<Assignment> read_yaml_file(const std::filesystem::path& file);

/// As read_yaml_file, from memory; `name` stands for the file in errors.
/// @throws ConfigError as read_yaml_file does
LOCKSTEP_API std::vector<Assignment> read_yaml(std::string_view text, const std::string& name);

/// The variable of a key: `trainer.max_epochs` is LOCKSTEP_TRAINER_MAX_EPOCHS.
LOCKSTEP_API std::string variable_of(std::string_view key);

/// The assignments in environment variables (name to value; see env::with_prefix). Variables that
/// are no key of `tree` are left alone, except below `strict_roots` (`trainer`: LOCKSTEP_TRAINER_*).
/// @throws ConfigError for such a variable, with the nearest name, and for one that means two keys
LOCKSTEP_API std::vector<Assignment> read_environment(const std::map<std::string, std::string>& variables,
                                                      const OptionTree& tree,
                                                      std::span<const std::string> strict_roots);

}  // namespace lockstep
