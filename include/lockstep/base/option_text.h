// What somebody wrote for an option, and where: the common form of flags, YAML and environment
// variables before they meet the options' types.
#pragma once

#include <string>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep {

/// The text given for one option. Lines and columns count from 1; 0: not from a file.
struct OptionText {
  enum class Kind { kScalar, kNull, kList, kMap };

  Kind kind = Kind::kScalar;
  std::string text = {};               ///< of a scalar
  bool quoted = false;                 ///< in quotation marks: "null" is then a word like any other
  std::vector<OptionText> items = {};  ///< of a list
  int line = 0;
  int column = 0;
};

/// How `text` is named in errors: `"abc"`, `a list`, `null`, `a map`.
LOCKSTEP_API std::string shown(const OptionText& text);

/// Where an option was given.
struct Source {
  enum class Kind { kCode, kYaml, kEnvironment, kFlag };

  Kind kind = Kind::kCode;
  std::string name = {};  ///< the file, the variable or the flag (with its dashes)
  int line = 0;           ///< of the key in the file
  int column = 0;

  /// Whether both stand in the same file, or both on the command line, ...
  LOCKSTEP_API bool same_origin(const Source& other) const;
};

/// `conf.yaml:3:5`, `flag --trainer.devices`, `environment variable LOCKSTEP_TRAINER_DEVICES`.
LOCKSTEP_API std::string shown(const Source& source);

/// One option given by the user. Lists of assignments are ordered by precedence: later ones win.
struct Assignment {
  std::string key = {};  ///< dotted: `trainer.strategy.timeout`
  OptionText value = {};
  Source source = {};
};

}  // namespace lockstep
