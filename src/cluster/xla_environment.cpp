#include <lockstep/cluster/xla_environment.h>

#include <lockstep/base/env.h>

#include "cluster/node_list.h"
#include "cluster/variables.h"

namespace lockstep {
namespace {

constexpr std::string_view kSetBy = "the TPU runtime";
constexpr int kDefaultPort = 12'355;
constexpr const char* kHosts = "TPU_WORKER_HOSTNAMES";

int read(const char* name, int fallback, int min, int max, std::string_view max_name = "") {
  return cluster::read_int({.name = name, .set_by = kSetBy, .min = min, .max = max, .max_name = max_name},
                           fallback);
}

RankPlace read_place() {
  const auto listed = env::get(kHosts);
  const auto hosts = listed ? cluster::expand_node_list(kHosts, *listed) : std::vector<std::string>();
  const int num_hosts = hosts.empty() ? 1 : static_cast<int>(hosts.size());
  const int host = read("TPU_WORKER_ID", 0, 0, num_hosts - 1, "hosts of TPU_WORKER_HOSTNAMES - 1");
  const int local_size = read("PJRT_LOCAL_PROCESS_COUNT", 1, 1, cluster::kMaxRanks);
  const int local_rank =
      read("PJRT_LOCAL_PROCESS_RANK", 0, 0, local_size - 1, "PJRT_LOCAL_PROCESS_COUNT - 1");
  return {.world_size = num_hosts * local_size,
          .global_rank = host * local_size + local_rank,
          .local_rank = local_rank,
          .node_rank = host,
          .local_world_size = local_size,
          .main_address = cluster::read_address(kSetBy, hosts.empty() ? "127.0.0.1" : hosts.front()),
          .main_port = cluster::read_port(kSetBy, kDefaultPort)};
}

}  // namespace

XlaEnvironment::XlaEnvironment() : ExternalEnvironment("xla", std::string(kSetBy), read_place()) {}

}  // namespace lockstep
