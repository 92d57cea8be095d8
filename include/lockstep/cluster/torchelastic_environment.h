// The environment of ranks started by torchrun.
#pragma once

#include <lockstep/cluster/environment.h>

namespace lockstep {

/// Ranks started by torchrun (or `torchrun --no-python ./program`), known by TORCHELASTIC_RUN_ID.
/// MASTER_ADDR and MASTER_PORT are 127.0.0.1 and 12910, with a warning, where they are unset.
/// Source: Lightning's `TorchElasticEnvironment`; variables: torchrun's worker environment.
class LOCKSTEP_API TorchElasticEnvironment final : public ExternalEnvironment {
 public:
  /// Reads RANK, WORLD_SIZE, LOCAL_RANK (obligatory), GROUP_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
  /// MASTER_PORT. @throws ConfigError naming variable and value when one is missing, malformed or out of
  /// range
  TorchElasticEnvironment();

  /// True when this process was started by torchrun.
  static bool detect();

  /// @throws ConfigError unless num_devices * num_nodes ranks were started
  void validate_settings(int num_devices, int num_nodes) const override;
};

}  // namespace lockstep
