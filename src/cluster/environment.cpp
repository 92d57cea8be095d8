#include <lockstep/cluster/environment.h>

#include <cstdint>
#include <utility>

#include <lockstep/base/error.h>

namespace lockstep {

ClusterEnvironment::~ClusterEnvironment() = default;
void ClusterEnvironment::set_world_size(int) {}
void ClusterEnvironment::set_global_rank(int) {}
std::optional<int> ClusterEnvironment::local_world_size() const { return std::nullopt; }
void ClusterEnvironment::validate_settings(int, int) const {}
void ClusterEnvironment::teardown() {}

ExternalEnvironment::ExternalEnvironment(std::string name, std::string started_by, RankPlace place)
    : name_(std::move(name)), started_by_(std::move(started_by)), place_(std::move(place)) {}

std::string ExternalEnvironment::name() const { return name_; }
bool ExternalEnvironment::creates_processes_externally() const { return true; }
std::string ExternalEnvironment::main_address() const { return place_.main_address; }
int ExternalEnvironment::main_port() const { return place_.main_port; }
int ExternalEnvironment::world_size() const { return place_.world_size; }
int ExternalEnvironment::global_rank() const { return place_.global_rank; }
int ExternalEnvironment::local_rank() const { return place_.local_rank; }
int ExternalEnvironment::node_rank() const { return place_.node_rank; }
std::optional<int> ExternalEnvironment::local_world_size() const { return place_.local_world_size; }

void ExternalEnvironment::validate_settings(int num_devices, int num_nodes) const {
  if (std::int64_t{num_devices} * num_nodes == place_.world_size) return;
  throw ConfigError(
      "cluster",
      {.what = "the settings do not match the ranks that " + started_by_ + " started",
       .expected = "devices * num_nodes = " + std::to_string(place_.world_size),
       .got = "devices=" + std::to_string(num_devices) + " * num_nodes=" + std::to_string(num_nodes),
       .hint = "start as many ranks, or change devices and num_nodes"});
}

}  // namespace lockstep
