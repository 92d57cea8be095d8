#include <lockstep/cluster/torchelastic_environment.h>

#include <cstdint>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "cluster/variables.h"

namespace lockstep {
namespace {

constexpr const char* kChosenBy = "TORCHELASTIC_RUN_ID";

// lockstep run sets the same variables as torchrun.
cluster::Source set_by() {
  return {env::get("LOCKSTEP_LAUNCHED") == "run" ? "lockstep run" : "torchrun", kChosenBy};
}

constexpr const char* kDefaultAddress = "127.0.0.1";
constexpr int kDefaultPort = 12910;

int require_rank(const char* name, int world_size) {
  return cluster::require_int(
      {.name = name, .set_by = set_by(), .max = world_size - 1, .max_name = "WORLD_SIZE - 1"});
}

void warn_if_unset(const std::string& name, const std::string& fallback, int rank) {
  if (cluster::is_set(name) || rank != 0) return;
  warn_once("cluster." + name, name + " is not set; using " + fallback);
}

void require_local_rank(const RankPlace& place) {
  if (!place.local_world_size) return;
  cluster::require_int({.name = "LOCAL_RANK",
                        .set_by = set_by(),
                        .max = *place.local_world_size - 1,
                        .max_name = "LOCAL_WORLD_SIZE - 1"});
}

RankPlace read_place() {
  const int world_size =
      cluster::require_int({.name = "WORLD_SIZE", .set_by = set_by(), .min = 1, .max = cluster::kMaxRanks});
  RankPlace place{.world_size = world_size,
                  .global_rank = require_rank("RANK", world_size),
                  .local_rank = require_rank("LOCAL_RANK", world_size),
                  .node_rank = cluster::read_int({.name = "GROUP_RANK", .set_by = set_by()}, 0),
                  .local_world_size = cluster::read_local_world_size(set_by()),
                  .main_address = cluster::read_address(set_by(), kDefaultAddress),
                  .main_port = cluster::read_port(set_by(), kDefaultPort)};
  require_local_rank(place);
  warn_if_unset("MASTER_ADDR", kDefaultAddress, place.global_rank);
  warn_if_unset("MASTER_PORT", std::to_string(kDefaultPort), place.global_rank);
  return place;
}

}  // namespace

bool TorchElasticEnvironment::detect() { return cluster::is_set(kChosenBy); }

TorchElasticEnvironment::TorchElasticEnvironment()
    : ExternalEnvironment("torchelastic", std::string(set_by().name), read_place()) {}

void TorchElasticEnvironment::validate_settings(int num_devices, int num_nodes) const {
  if (std::int64_t{num_devices} * num_nodes == world_size()) return;
  const std::string launcher(set_by().name);
  throw ConfigError(
      "cluster",
      {.what = "the settings do not match the ranks that " + launcher + " started",
       .expected = "devices * num_nodes = WORLD_SIZE = " + std::to_string(world_size()),
       .got = "devices=" + std::to_string(num_devices) + " * num_nodes=" + std::to_string(num_nodes),
       .hint = "start " + launcher + " with --nproc-per-node=" + std::to_string(num_devices) +
               " --nnodes=" + std::to_string(num_nodes) + ", or change devices and num_nodes"});
}

}  // namespace lockstep
