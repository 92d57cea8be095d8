// The flags of a program as shells complete them.
#pragma once

#include <string>
#include <vector>

#include <lockstep/base/command_line.h>
#include <lockstep/base/export.h>

namespace lockstep {

/// One flag, whichever alternatives of a choice have it.
struct CompletionFlag {
  std::string name = {};                ///< with its dashes
  std::string help = {};                ///< one sentence
  std::vector<std::string> words = {};  ///< the values there are, if they have names
  bool takes_path = false;
  bool takes_value = true;   ///< false: a switch
  bool needs_value = true;   ///< false: a switch, or a bool, which is true without one
  bool is_repeated = false;  ///< may be given several times
};

/// Every flag once, those of all programs first.
LOCKSTEP_API std::vector<CompletionFlag> completion_flags(const OptionTree& tree,
                                                          const CommandLineInfo& info);

}  // namespace lockstep
