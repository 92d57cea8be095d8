#include <lockstep/cluster/lsf_environment.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <vector>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "cluster/variables.h"

namespace lockstep {
namespace {

constexpr cluster::Source kSetBy = {"LSF", "JSM_NAMESPACE_SIZE"};
constexpr int kFirstPort = 10'000;
constexpr int kPorts = 1'000;

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

int require(const char* name, int min, int max = cluster::kNoLimit, std::string_view max_name = "") {
  return cluster::require_int({.name = name, .set_by = kSetBy, .min = min, .max = max, .max_name = max_name});
}

RankPlace read_place() {
  const auto hosts = read_hosts();
  const auto own = own_host();
  const int size = require("JSM_NAMESPACE_SIZE", 1, cluster::kMaxRanks);
  const int job = require("LSB_JOBID", 0);
  return {.world_size = size,
          .global_rank = require("JSM_NAMESPACE_RANK", 0, size - 1, "JSM_NAMESPACE_SIZE - 1"),
          .local_rank = require("JSM_NAMESPACE_LOCAL_RANK", 0, size - 1, "JSM_NAMESPACE_SIZE - 1"),
          .node_rank = node_rank_of(hosts, own),
          .local_world_size = static_cast<int>(std::ranges::count(hosts, own)),
          .main_address = cluster::read_address(kSetBy, hosts.front()),
          .main_port = cluster::read_port(kSetBy, kFirstPort + job % kPorts)};
}

}  // namespace

bool LsfEnvironment::detect() {
  return std::ranges::all_of(
      std::array{"LSB_JOBID", "LSB_DJOB_RANKFILE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_SIZE"},
      cluster::is_set);
}

LsfEnvironment::LsfEnvironment() : ExternalEnvironment("lsf", std::string(kSetBy.name), read_place()) {}

}  // namespace lockstep
