#include <lockstep/cluster/mpi_environment.h>

#include <algorithm>
#include <cstdint>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "cluster/variables.h"

namespace lockstep {
namespace {

constexpr int kDefaultPort = 12'910;
constexpr int kFirstPort = 15'000;
constexpr int kPorts = 10'000;

// The variables of a process manager. Only Open MPI always sets those about the ranks of one node.
struct Manager {
  const char* size;
  const char* rank;
  const char* local_size;
  const char* local_rank;
  bool always_tells_local;
};

constexpr Manager kManagers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", true},
    {"PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID", false},
};

const Manager* manager() {
  const auto* found =
      std::ranges::find_if(kManagers, [](const auto& one) { return cluster::is_set(one.size); });
  return found == std::end(kManagers) ? nullptr : found;
}

cluster::Source set_by() {
  const auto* found = manager();
  return {"mpirun", found == nullptr ? "" : found->size};
}

int require(const char* name, int min, int max, std::string_view max_name) {
  return cluster::require_int(
      {.name = name, .set_by = set_by(), .min = min, .max = max, .max_name = max_name});
}

// A variable about the ranks of this node, which a world of one rank does not need.
int read_local(bool is_told, const char* name, int fallback, int min, int max, std::string_view max_name) {
  const bool is_required = is_told && max > fallback;
  return is_required || cluster::is_set(name) ? require(name, min, max, max_name) : fallback;
}

std::string main_address_of(bool on_one_node) {
  if (on_one_node || cluster::is_set("MASTER_ADDR")) return cluster::read_address(set_by(), "127.0.0.1");
  throw ConfigError(
      "cluster",
      {.what = "environment variable MASTER_ADDR",
       .expected = "the address of rank 0's node, as the ranks are on several",
       .got = "unset",
       .hint = std::string("mpirun -x MASTER_ADDR=HOST (Open MPI) or -genv MASTER_ADDR HOST (MPICH)") +
               cluster::or_unset(set_by())});
}

// A port made from the job's name by FNV-1a, so that jobs on one machine get different ports: only the ranks
// of a job share its name.
int port_of_job() {
  const auto job = env::get("PMIX_NAMESPACE");
  if (!job) return kDefaultPort;
  std::uint32_t hash = 2'166'136'261U;
  for (const char character : *job) hash = (hash ^ static_cast<unsigned char>(character)) * 16'777'619U;
  return kFirstPort + static_cast<int>(hash % kPorts);
}

RankPlace read_place() {
  const auto* found = manager();
  const auto& names = found == nullptr ? kManagers[0] : *found;
  const int size = require(names.size, 1, cluster::kMaxRanks, "");
  const int rank = require(names.rank, 0, size - 1, std::string(names.size) + " - 1");
  const int local_size = read_local(names.always_tells_local, names.local_size, 1, 1, size, names.size);
  const int local_rank = read_local(names.always_tells_local, names.local_rank, 0, 0, local_size - 1,
                                    std::string(names.local_size) + " - 1");
  return {.world_size = size,
          .global_rank = rank,
          .local_rank = local_rank,
          .node_rank = rank / local_size,
          .local_world_size = local_size,
          .main_address = main_address_of(local_size == size),
          .main_port = cluster::read_port(set_by(), port_of_job())};
}

}  // namespace

bool cluster::started_by_mpirun() {
  return cluster::is_set("OMPI_COMM_WORLD_SIZE") || cluster::is_set("MPI_LOCALNRANKS");
}

bool MpiEnvironment::detect() {
  const auto* found = manager();
  return found != nullptr && env::get(found->size) != "1";
}

MpiEnvironment::MpiEnvironment() : ExternalEnvironment("mpi", std::string(set_by().name), read_place()) {}

}  // namespace lockstep
