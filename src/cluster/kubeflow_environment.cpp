#include <lockstep/cluster/kubeflow_environment.h>

#include "cluster/variables.h"

namespace lockstep {
namespace {

constexpr std::string_view kSetBy = "the PyTorchJob of Kubeflow's training operator";

RankPlace read_place() {
  const int world_size =
      cluster::require_int({.name = "WORLD_SIZE", .set_by = kSetBy, .min = 1, .max = cluster::kMaxRanks});
  const int rank = cluster::require_int(
      {.name = "RANK", .set_by = kSetBy, .max = world_size - 1, .max_name = "WORLD_SIZE - 1"});
  return {.world_size = world_size,
          .global_rank = rank,
          .local_rank = 0,
          .node_rank = rank,
          .local_world_size = 1,
          .main_address = cluster::require_address(kSetBy),
          .main_port = cluster::require_port(kSetBy)};
}

}  // namespace

KubeflowEnvironment::KubeflowEnvironment()
    : ExternalEnvironment("kubeflow", std::string(kSetBy), read_place()) {}

}  // namespace lockstep
