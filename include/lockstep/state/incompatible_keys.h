// The names that only a module or only a checkpoint has, when the others are loaded.
#pragma once

#include <string>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep {

/// What torch.nn.Module.load_state_dict returns: the names that only one side has, in alphabetical order.
/// Both are empty after a strict load.
struct IncompatibleKeys {
  std::vector<std::string> missing_keys = {};  ///< names of the module, which keeps its own values for them
  std::vector<std::string> unexpected_keys = {};  ///< names of what was loaded, which were ignored

  bool empty() const { return missing_keys.empty() && unexpected_keys.empty(); }
};

/// Warns with Lightning's text of the names that only `source` or only the module has. Does nothing when
/// there are none.
LOCKSTEP_API void warn_of(const IncompatibleKeys& keys, const std::string& source);

}  // namespace lockstep
