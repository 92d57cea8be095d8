#include <lockstep/cluster/environment.h>

namespace lockstep {

ClusterEnvironment::~ClusterEnvironment() = default;
void ClusterEnvironment::set_world_size(int) {}
void ClusterEnvironment::set_global_rank(int) {}
std::optional<int> ClusterEnvironment::local_world_size() const { return std::nullopt; }
void ClusterEnvironment::validate_settings(int, int) const {}
void ClusterEnvironment::teardown() {}

}  // namespace lockstep
