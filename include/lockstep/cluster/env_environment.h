// The environment of ranks that were started by hand.
#pragma once

#include <lockstep/cluster/environment.h>

namespace lockstep {

/// Ranks whose place is in RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as `init_process_group("env://")`
/// reads them: started in several shells, by a script, or by a launcher that no other environment knows.
/// LOCAL_RANK and LOCAL_WORLD_SIZE are optional: where MASTER_ADDR is this machine's loopback, all ranks are
/// on it, else LOCAL_RANK is 0.
class LOCKSTEP_API EnvEnvironment final : public ExternalEnvironment {
 public:
  /// MASTER_ADDR and MASTER_PORT are obligatory where WORLD_SIZE is above 1.
  /// @throws ConfigError naming variable and value when one is missing, malformed or out of range
  EnvEnvironment();

  /// True when RANK is set, but for the only rank of a world of one, who may start others, and for ranks that
  /// this library has started.
  static bool detect();
};

}  // namespace lockstep
