// What the environments have in common in which a launcher or scheduler started all ranks.
#pragma once

#include <optional>
#include <string>

#include <lockstep/cluster/environment.h>

namespace lockstep {

/// A rank's place in the job, and where all ranks meet.
struct RankPlace {
  int world_size = 1;
  int global_rank = 0;
  int local_rank = 0;
  int node_rank = 0;
  std::optional<int> local_world_size = {};  ///< none where the variables do not tell
  std::string main_address = {};
  int main_port = 0;
};

/// Each rank was told its place by variables, which are read once: later changes to them are not seen, and
/// the setters are ignored.
class LOCKSTEP_API ExternalEnvironment : public ClusterEnvironment {
 public:
  std::string name() const override;
  bool creates_processes_externally() const override;
  std::string main_address() const override;
  int main_port() const override;
  int world_size() const override;
  int global_rank() const override;
  int local_rank() const override;
  int node_rank() const override;
  std::optional<int> local_world_size() const override;
  /// @throws ConfigError unless num_devices * num_nodes ranks were started
  void validate_settings(int num_devices, int num_nodes) const override;

 protected:
  /// `started_by` is for messages, such as "torchrun".
  ExternalEnvironment(std::string name, std::string started_by, RankPlace place);

 private:
  std::string name_;
  std::string started_by_;
  RankPlace place_;
};

}  // namespace lockstep
