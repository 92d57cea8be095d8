// Which devices a run uses: the `devices` option of Trainer and Fabric.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep {

/// How many ranks this node runs and on which devices.
struct DevicePlan {
  std::string accelerator = "cpu";  ///< "cpu"
  int count = 1;                    ///< ranks on this node, >= 1
};

/// Parses the `accelerator` and `devices` options as Lightning does for CPUs:
/// "auto" is 1, a number n >= 1 is n ranks.
/// @throws ConfigError naming option and value for 0, negative numbers, lists and other text
LOCKSTEP_API DevicePlan parse_devices(std::string_view accelerator, std::string_view devices);

}  // namespace lockstep
