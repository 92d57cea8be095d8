#include <lockstep/cluster/environment.h>

namespace lockstep {

ClusterEnvironment::~ClusterEnvironment() = default;
void ClusterEnvironment::set_world_size(int) {}
void ClusterEnvironment::set_global_rank(int) {}
void ClusterEnvironment::validate_settings(int, int) const {}
void ClusterEnvironment::teardown() {}

}  // namespace lockstep
