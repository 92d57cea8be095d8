// Finds out which launcher or scheduler started this process.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include <lockstep/cluster/environment.h>

namespace lockstep {

/// One row of the table of known environments.
struct EnvironmentKind {
  std::string_view name;                          ///< what name() of its instances returns
  std::string_view spelling;                      ///< Lightning's, such as "SLURM"; may be given too
  bool (*detect)();                               ///< true when this process was started by it
  std::shared_ptr<ClusterEnvironment> (*make)();  ///< parses it; may throw ConfigError
};

/// All environments, in the order in which they are asked. The last one always is it; some never are, and
/// are chosen by name.
LOCKSTEP_API std::span<const EnvironmentKind> environment_kinds();

/// The environment this process runs in: the first of environment_kinds() that is detected.
/// @throws ConfigError naming variable and value when its variables are malformed
LOCKSTEP_API std::shared_ptr<ClusterEnvironment> detect_environment();

/// The environment called `name`, in any mix of cases, whether it is detected or not.
/// @throws ConfigError naming the accepted names, or as detect_environment()
LOCKSTEP_API std::shared_ptr<ClusterEnvironment> make_environment(std::string_view name);

}  // namespace lockstep
