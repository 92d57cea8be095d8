// The environments that variables with the names of PyTorch describe (MASTER_ADDR, RANK, LOCAL_RANK): of a
// program that starts its own ranks, of ranks started by hand or by torchrun, and of pods of Kubeflow.
#pragma once

#include <lockstep/cluster/environment.h>

namespace lockstep {

/// Where no scheduler is found: lockstep starts the ranks itself, or a user did by hand with
/// MASTER_ADDR, MASTER_PORT, NODE_RANK and LOCAL_RANK. World size and rank are what the setters were
/// told. Source: Lightning's `LightningEnvironment`.
class LOCKSTEP_API LightningEnvironment final : public ClusterEnvironment {
 public:
  /// Reads the environment variables; later changes to them are not seen.
  /// @throws ConfigError naming the variable that is malformed
  LightningEnvironment();

  std::string name() const override;
  /// True when LOCAL_RANK is set: this process is one of several already.
  bool creates_processes_externally() const override;
  /// MASTER_ADDR, else 127.0.0.1.
  std::string main_address() const override;
  /// MASTER_PORT, else a port that was free when first asked; the same at every call.
  /// @throws ConfigError when no port is free
  int main_port() const override;
  int world_size() const override;
  /// @throws ConfigError unless size >= 1
  void set_world_size(int size) override;
  int global_rank() const override;
  /// @throws ConfigError unless rank >= 0
  void set_global_rank(int rank) override;
  /// LOCAL_RANK, else 0.
  int local_rank() const override;
  /// NODE_RANK, else GROUP_RANK, else 0.
  int node_rank() const override;
  /// LOCAL_WORLD_SIZE, where it is set.
  std::optional<int> local_world_size() const override;
  /// @throws ConfigError naming the variable, where WORLD_SIZE, NODE_RANK or LOCAL_RANK is set for a job of
  /// another size, or ranks that are started already have no MASTER_PORT to meet at
  void validate_settings(int num_devices, int num_nodes) const override;
  /// Removes WORLD_SIZE from the process environment, unless RANK is set and the world has one rank: both
  /// are what the job was started with.
  void teardown() override;

 private:
  bool external_;
  std::string main_address_;
  mutable int main_port_;
  int local_rank_;
  int node_rank_;
  std::optional<int> local_world_size_;
  std::optional<int> told_world_size_;
  int world_size_ = 1;
  int global_rank_ = 0;
};

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

/// Ranks started by torchrun, also with its flag --no-python, known by TORCHELASTIC_RUN_ID.
/// MASTER_ADDR and MASTER_PORT are 127.0.0.1 and 12910, with a warning, where they are unset.
/// Source: `TorchElasticEnvironment` of Lightning; variables: the worker environment of torchrun.
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

/// Pods that Kubeflow's training operator started for a PyTorchJob, one rank in each. Never detected, since
/// its variables are everybody's: choose it by name. Source: Lightning's `KubeflowEnvironment`.
class LOCKSTEP_API KubeflowEnvironment final : public ExternalEnvironment {
 public:
  /// Reads MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK, all obligatory.
  /// @throws ConfigError naming variable and value when one is missing, malformed or out of range
  KubeflowEnvironment();
};

}  // namespace lockstep
