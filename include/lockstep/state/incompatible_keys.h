// What is left when only the tensors that both sides have are loaded.
#pragma once

#include <string>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep {

/// What torch.nn.Module.load_state_dict returns: the names that only one side has, in alphabetical order.
/// Both are empty after a strict load.
struct IncompatibleKeys {
  std::vector<std::string> missing_keys = {};     ///< of the module, which kept its own values
  std::vector<std::string> unexpected_keys = {};  ///< of what was loaded, which were left out

  bool empty() const { return missing_keys.empty() && unexpected_keys.empty(); }
};

/// Says on stderr, in Lightning's words, which names `source` and the module have not in common. Silent when
/// there are none.
LOCKSTEP_API void warn_of(const IncompatibleKeys& keys, const std::string& source);

}  // namespace lockstep
