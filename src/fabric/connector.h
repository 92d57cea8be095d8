// How the ranks of a Trainer or a Fabric come together: who they are, who starts them, how the model is
// spread over them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <lockstep/cluster/environment.h>
#include <lockstep/device/devices.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/strategy/strategy_options.h>

namespace lockstep::detail {

/// What a Trainer and a Fabric are told about devices and ranks.
struct ConnectorOptions {
  std::string accelerator = "auto";
  Devices devices = {};
  int num_nodes = 1;
  StrategyOptions strategy = Auto{};
  bool cuda_graphs = false;
  bool expandable_segments = false;
  std::shared_ptr<ClusterEnvironment> cluster_environment = {};  ///< none: detected
};

/// The environment that `strategy` names or brings along, or the one `besides`; none where it is to be
/// detected.
/// @throws ConfigError where there are two, or the named one does not know its place
LOCKSTEP_API std::shared_ptr<ClusterEnvironment> named_environment(
    const StrategyOptions& strategy, const std::shared_ptr<ClusterEnvironment>& besides);

/// Looks at options and environment, once; after that it only tells. Nothing here is Collective.
class Connector {
 public:
  /// Starts nothing and connects to nobody.
  /// @throws ConfigError when options and environment do not agree
  explicit Connector(ConnectorOptions options);

  const std::shared_ptr<ClusterEnvironment>& environment() const { return environment_; }
  /// Ranks per node and nodes: from the options, or from the launcher that started this process.
  const WorldShape& shape() const { return shape_; }
  int world_size() const { return shape_.devices * shape_.num_nodes; }

  /// That of this rank. @throws ConfigError for a local rank beyond those that devices are named for
  at::Device device() const { return device_of_rank(plan_, environment_->local_rank()); }

  /// Whether nobody has started the ranks that are asked for.
  /// @throws ConfigError when they are needed and the strategy allows no such start
  bool must_start_ranks() const;

  /// Becomes the supervisor of copies of this process, one per rank of this node, and exits with their
  /// status. They write ranks.json and failure.json to `run_dir`; empty: nothing.
  [[noreturn]] void start_ranks(const std::filesystem::path& run_dir) const;

  /// Makes this process one of the ranks: known to its launcher, and to the environment by its number, with
  /// its device as the current one. Returns the strategy, whose setup_environment() comes next.
  /// @throws ConfigError when the strategy cannot have that many ranks, or there is no device for this one
  std::shared_ptr<Strategy> join() const;

 private:
  ConnectorOptions options_;
  std::shared_ptr<ClusterEnvironment> environment_;
  DevicePlan plan_;
  WorldShape shape_;
};

}  // namespace lockstep::detail
