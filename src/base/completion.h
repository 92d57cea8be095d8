// The flags of a program as shells complete them.
#pragma once

#include <string>
#include <vector>

#include <lockstep/base/command_line.h>
#include <lockstep/base/export.h>

namespace lockstep {

/// One flag; flags that several alternatives of a choice share are one.
struct CompletionFlag {
  std::string name = {};                ///< with its dashes
  std::string help = {};                ///< one sentence
  std::vector<std::string> words = {};  ///< the accepted values, where these have names
  bool takes_path = false;
  bool takes_value = true;   ///< false: a switch
  bool needs_value = true;   ///< false: a switch, or a bool, which is true without one
  bool is_repeated = false;  ///< may be given several times
};

/// Every flag once, those of all programs first.
LOCKSTEP_API std::vector<CompletionFlag> completion_flags(const OptionTree& tree,
                                                          const CommandLineInfo& info);

}  // namespace lockstep
