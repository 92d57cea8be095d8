#include <lockstep/cluster/launcher_environments.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <vector>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "cluster/variables.h"

namespace lockstep {
namespace {

constexpr cluster::Source kLsf = {"LSF", "JSM_NAMESPACE_SIZE"};
constexpr int kFirstLsfPort = 10'000;
constexpr int kLsfPorts = 1'000;

[[noreturn]] void refuse_file(const std::string& path, const char* got) {
  throw ConfigError("cluster",
                    {.what = "environment variable LSB_DJOB_RANKFILE",
                     .expected = "a file with the launch node's name and one host name for each rank",
                     .got = "\"" + path + "\", " + got,
                     .hint = "it is set by LSF"});
}

// The hosts of the ranks; the first line is the node that jsrun itself ran on.
std::vector<std::string> read_hosts() {
  const auto path = env::get("LSB_DJOB_RANKFILE").value_or("");
  if (path.empty()) refuse_file(path, "which names no file");
  std::ifstream file(path);
  if (!file) refuse_file(path, "which cannot be read");
  std::vector<std::string> hosts;
  for (std::string host; file >> host;) hosts.push_back(host);
  if (hosts.size() < 2) refuse_file(path, "which names no compute host");
  hosts.erase(hosts.begin());
  return hosts;
}

std::string own_host() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// The index of this host among the distinct hosts of the file, in their order.
int node_rank_of(const std::vector<std::string>& hosts, const std::string& own) {
  std::vector<std::string> nodes;
  for (const auto& host : hosts)
    if (std::ranges::find(nodes, host) == nodes.end()) nodes.push_back(host);
  const auto found = std::ranges::find(nodes, own);
  if (found == nodes.end())
    throw ConfigError("cluster", {.what = "the rank file of LSB_DJOB_RANKFILE does not name this host",
                                  .expected = "one of the " + std::to_string(nodes.size()) +
                                              " hosts, such as " + nodes.front(),
                                  .got = own});
  return static_cast<int>(found - nodes.begin());
}

int require_lsf(const char* name, int min, int max = cluster::kNoLimit, std::string_view max_name = "") {
  return cluster::require_int({.name = name, .set_by = kLsf, .min = min, .max = max, .max_name = max_name});
}

RankPlace read_lsf_place() {
  const auto hosts = read_hosts();
  const auto own = own_host();
  const int size = require_lsf("JSM_NAMESPACE_SIZE", 1, cluster::kMaxRanks);
  const int job = require_lsf("LSB_JOBID", 0);
  return {.world_size = size,
          .global_rank = require_lsf("JSM_NAMESPACE_RANK", 0, size - 1, "JSM_NAMESPACE_SIZE - 1"),
          .local_rank = require_lsf("JSM_NAMESPACE_LOCAL_RANK", 0, size - 1, "JSM_NAMESPACE_SIZE - 1"),
          .node_rank = node_rank_of(hosts, own),
          .local_world_size = static_cast<int>(std::ranges::count(hosts, own)),
          .main_address = cluster::read_address(kLsf, hosts.front()),
          .main_port = cluster::read_port(kLsf, kFirstLsfPort + job % kLsfPorts)};
}

}  // namespace

bool LsfEnvironment::detect() {
  return std::ranges::all_of(
      std::array{"LSB_JOBID", "LSB_DJOB_RANKFILE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_SIZE"},
      cluster::is_set);
}

LsfEnvironment::LsfEnvironment() : ExternalEnvironment("lsf", std::string(kLsf.name), read_lsf_place()) {}

namespace {

constexpr int kDefaultMpiPort = 12'910;
constexpr int kFirstMpiPort = 15'000;
constexpr int kMpiPorts = 10'000;

// The variables of a process manager. Not all always set those about the ranks of one node.
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
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     true},                                                               // mpirun_rsh of MVAPICH2
    {"PMI_SIZE", "PMI_RANK", "PMI_LOCAL_SIZE", "PMI_LOCAL_RANK", false},  // mpiexec of Cray's PALS
    {"PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID", false},
};

// Of those whose variables are there the one that tells which ranks share a node, where one does.
const Manager* manager() {
  const Manager* found = nullptr;
  for (const auto& one : kManagers) {
    if (!cluster::is_set(one.size)) continue;
    found = &one;
    if (one.always_tells_local || cluster::is_set(one.local_size)) break;
  }
  return found;
}

cluster::Source mpirun() {
  const auto* found = manager();
  return {"mpirun", found == nullptr ? "" : found->size};
}

int require_mpi(const char* name, int min, int max, std::string_view max_name) {
  return cluster::require_int(
      {.name = name, .set_by = mpirun(), .min = min, .max = max, .max_name = max_name});
}

// A variable about the ranks of this node, which a world of one rank does not need.
int read_local(bool is_told, const char* name, int fallback, int min, int max, std::string_view max_name) {
  const bool is_required = is_told && max > fallback;
  return is_required || cluster::is_set(name) ? require_mpi(name, min, max, max_name) : fallback;
}

std::string main_address_of(bool on_one_node) {
  if (on_one_node || cluster::is_set("MASTER_ADDR")) return cluster::read_address(mpirun(), "127.0.0.1");
  throw ConfigError(
      "cluster",
      {.what = "environment variable MASTER_ADDR",
       .expected = "the address of rank 0's node, as the ranks are on several",
       .got = "unset",
       .hint = std::string("mpirun -x MASTER_ADDR=HOST (Open MPI) or -genv MASTER_ADDR HOST (MPICH)") +
               cluster::or_unset(mpirun())});
}

// A port made from the job's name by FNV-1a, so that jobs on one machine get different ports: only the ranks
// of a job share its name.
int port_of_job() {
  const auto job = env::get("PMIX_NAMESPACE");
  if (!job) return kDefaultMpiPort;
  std::uint32_t hash = 2'166'136'261U;
  for (const char character : *job) hash = (hash ^ static_cast<unsigned char>(character)) * 16'777'619U;
  return kFirstMpiPort + static_cast<int>(hash % kMpiPorts);
}

RankPlace read_mpi_place() {
  const auto* found = manager();
  const auto& names = found == nullptr ? kManagers[0] : *found;
  const int size = require_mpi(names.size, 1, cluster::kMaxRanks, "");
  const int rank = require_mpi(names.rank, 0, size - 1, std::string(names.size) + " - 1");
  const int local_size = read_local(names.always_tells_local, names.local_size, 1, 1, size, names.size);
  const int local_rank = read_local(names.always_tells_local, names.local_rank, 0, 0, local_size - 1,
                                    std::string(names.local_size) + " - 1");
  return {.world_size = size,
          .global_rank = rank,
          .local_rank = local_rank,
          .node_rank = rank / local_size,
          .local_world_size = local_size,
          .main_address = main_address_of(local_size == size),
          .main_port = cluster::read_port(mpirun(), port_of_job())};
}

}  // namespace

bool cluster::started_by_mpirun() {
  return std::ranges::any_of(std::array{"OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "MPI_LOCALNRANKS"},
                             cluster::is_set);
}

bool MpiEnvironment::detect() {
  const auto* found = manager();
  return found != nullptr && env::get(found->size) != "1";
}

MpiEnvironment::MpiEnvironment() : ExternalEnvironment("mpi", std::string(mpirun().name), read_mpi_place()) {}

namespace {

constexpr std::string_view kTpuRuntime = "the TPU runtime";
constexpr int kDefaultTpuPort = 12'355;
constexpr const char* kTpuHosts = "TPU_WORKER_HOSTNAMES";

int read_tpu(const char* name, int fallback, int min, int max, std::string_view max_name = "") {
  return cluster::read_int(
      {.name = name, .set_by = kTpuRuntime, .min = min, .max = max, .max_name = max_name}, fallback);
}

RankPlace read_tpu_place() {
  const auto listed = env::get(kTpuHosts);
  const auto hosts = listed ? cluster::expand_node_list(kTpuHosts, *listed) : std::vector<std::string>();
  const int num_hosts = hosts.empty() ? 1 : static_cast<int>(hosts.size());
  const int host = read_tpu("TPU_WORKER_ID", 0, 0, num_hosts - 1, "hosts of TPU_WORKER_HOSTNAMES - 1");
  const int local_size = read_tpu("PJRT_LOCAL_PROCESS_COUNT", 1, 1, cluster::kMaxRanks);
  const int local_rank =
      read_tpu("PJRT_LOCAL_PROCESS_RANK", 0, 0, local_size - 1, "PJRT_LOCAL_PROCESS_COUNT - 1");
  return {.world_size = num_hosts * local_size,
          .global_rank = host * local_size + local_rank,
          .local_rank = local_rank,
          .node_rank = host,
          .local_world_size = local_size,
          .main_address = cluster::read_address(kTpuRuntime, hosts.empty() ? "127.0.0.1" : hosts.front()),
          .main_port = cluster::read_port(kTpuRuntime, kDefaultTpuPort)};
}

}  // namespace

XlaEnvironment::XlaEnvironment() : ExternalEnvironment("xla", std::string(kTpuRuntime), read_tpu_place()) {}

}  // namespace lockstep
