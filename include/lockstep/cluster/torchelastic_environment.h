// The environment of ranks started by torchrun.
#pragma once

#include <lockstep/cluster/environment.h>

namespace lockstep {

/// Ranks started by torchrun (or `torchrun --no-python ./program`), known by TORCHELASTIC_RUN_ID.
/// Source: Lightning's `TorchElasticEnvironment`; variables: torchrun's worker environment.
class LOCKSTEP_API TorchElasticEnvironment final : public ClusterEnvironment {
 public:
  /// Reads RANK, WORLD_SIZE, LOCAL_RANK (obligatory), GROUP_RANK, MASTER_ADDR and MASTER_PORT.
  /// @throws ConfigError naming variable and value when one is missing, malformed or out of range
  TorchElasticEnvironment();

  /// True when this process was started by torchrun.
  static bool detect();

  std::string name() const override;
  bool creates_processes_externally() const override;
  /// MASTER_ADDR; 127.0.0.1 with a warning when that is unset.
  std::string main_address() const override;
  /// MASTER_PORT; 12910 with a warning when that is unset.
  int main_port() const override;
  int world_size() const override;
  int global_rank() const override;
  int local_rank() const override;
  /// GROUP_RANK, else 0.
  int node_rank() const override;
  /// @throws ConfigError unless num_devices * num_nodes ranks were started
  void validate_settings(int num_devices, int num_nodes) const override;

 private:
  int world_size_;
  int global_rank_;
  int local_rank_;
  int node_rank_;
  std::string main_address_;
  int main_port_;
};

}  // namespace lockstep
