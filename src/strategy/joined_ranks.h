// How a strategy of several ranks forms their group.
#pragma once

#include <lockstep/cluster/environment.h>
#include <lockstep/comm/init.h>
#include <lockstep/strategy/strategy.h>

namespace lockstep::detail {

/// The group of all ranks, by the options of that name that strategies share. Collective, blocking.
/// @throws Timeout naming the ranks that are missing; ConfigError when the environment disagrees
template <class Options>
Communicator join_ranks(const Options& options, ClusterEnvironment& environment, const WorldShape& shape) {
  environment.validate_settings(shape.devices, shape.num_nodes);
  set_world_ranks(environment, shape);
  return init_communicator({.backend = options.process_group_backend,
                            .main_address = environment.main_address(),
                            .main_port = environment.main_port(),
                            .rank = environment.global_rank(),
                            .world_size = environment.world_size(),
                            .timeout = options.timeout,
                            .reduction = options.reduction,
                            .check_collectives = options.check_collectives});
}

}  // namespace lockstep::detail
