// The environments that RANK and WORLD_SIZE alone describe: of ranks started by hand, and of pods of
// Kubeflow.
#include <lockstep/cluster/env_environment.h>

#include <string>

#include <lockstep/base/env.h>
#include <lockstep/cluster/kubeflow_environment.h>

#include "cluster/variables.h"

namespace lockstep {
namespace {

constexpr std::string_view kSetBy =
    "whoever starts the ranks, together with RANK; unset RANK to let lockstep start them";
constexpr std::string_view kWhoever =
    "whoever starts the ranks; unset RANK and WORLD_SIZE to let lockstep start them";

bool is_loopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1" || address == "[::1]";
}

int read_node_rank(int fallback) {
  const int group = cluster::read_int({.name = "GROUP_RANK", .set_by = kWhoever}, fallback);
  return cluster::read_int({.name = "NODE_RANK", .set_by = kWhoever}, group);
}

void find_out_local_place(RankPlace& place) {
  const bool is_one_machine = place.world_size == 1 || is_loopback(place.main_address);
  place.local_world_size = cluster::read_local_world_size(kWhoever);
  if (!place.local_world_size && is_one_machine) place.local_world_size = place.world_size;
  const int most = place.local_world_size.value_or(place.world_size) - 1;
  place.local_rank = is_one_machine ? place.global_rank : 0;
  if (cluster::is_set("LOCAL_RANK") || place.local_rank > most)
    place.local_rank = cluster::require_int(
        {.name = "LOCAL_RANK",
         .set_by = kWhoever,
         .max = most,
         .max_name = place.local_world_size ? "LOCAL_WORLD_SIZE - 1" : "WORLD_SIZE - 1"});
  place.node_rank = read_node_rank(is_one_machine || cluster::is_set("LOCAL_RANK") ? 0 : place.global_rank);
}

RankPlace read_place() {
  RankPlace place;
  place.world_size = cluster::require_int({.name = "WORLD_SIZE", .set_by = kSetBy, .min = 1});
  place.global_rank = cluster::require_int(
      {.name = "RANK", .set_by = kWhoever, .max = place.world_size - 1, .max_name = "WORLD_SIZE - 1"});
  const bool must_meet = place.world_size > 1;
  place.main_address =
      must_meet ? cluster::require_address(kWhoever) : cluster::read_address(kWhoever, "127.0.0.1");
  place.main_port = must_meet ? cluster::require_port(kWhoever) : cluster::read_port(kWhoever, 0);
  find_out_local_place(place);
  return place;
}

}  // namespace

EnvEnvironment::EnvEnvironment()
    : ExternalEnvironment("env", "whoever has set RANK and WORLD_SIZE", read_place()) {}

bool EnvEnvironment::detect() {
  const auto rank = env::get("RANK");
  const auto launched = env::get("LOCKSTEP_LAUNCHED");
  if (!rank || launched == "fork" || launched == "reexec") return false;
  return rank != "0" || env::get("WORLD_SIZE") != "1";
}

namespace {

constexpr std::string_view kPyTorchJob = "the PyTorchJob of Kubeflow's training operator";

RankPlace read_pod_place() {
  const int world_size = cluster::require_int(
      {.name = "WORLD_SIZE", .set_by = kPyTorchJob, .min = 1, .max = cluster::kMaxRanks});
  const int rank = cluster::require_int(
      {.name = "RANK", .set_by = kPyTorchJob, .max = world_size - 1, .max_name = "WORLD_SIZE - 1"});
  return {.world_size = world_size,
          .global_rank = rank,
          .local_rank = 0,
          .node_rank = rank,
          .local_world_size = 1,
          .main_address = cluster::require_address(kPyTorchJob),
          .main_port = cluster::require_port(kPyTorchJob)};
}

}  // namespace

KubeflowEnvironment::KubeflowEnvironment()
    : ExternalEnvironment("kubeflow", std::string(kPyTorchJob), read_pod_place()) {}

}  // namespace lockstep
