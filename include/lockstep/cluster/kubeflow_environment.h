// The environment of pods of a PyTorchJob.
#pragma once

#include <lockstep/cluster/environment.h>

namespace lockstep {

/// Pods that Kubeflow's training operator started for a PyTorchJob, one rank in each. Never detected, since
/// its variables are everybody's: choose it by name. Source: Lightning's `KubeflowEnvironment`.
class LOCKSTEP_API KubeflowEnvironment final : public ExternalEnvironment {
 public:
  /// Reads MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK, all obligatory.
  /// @throws ConfigError naming variable and value when one is missing, malformed or out of range
  KubeflowEnvironment();
};

}  // namespace lockstep
