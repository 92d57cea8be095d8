// A ShardingPlan in words.
#pragma once

#include <string>
#include <vector>

#include <lockstep/comm/communicator.h>
#include <lockstep/parallel/sharded/sharding_plan.h>

namespace lockstep::detail {

/// The plan for modules on `device`: on the CPU nothing is offloaded to it, on others that comes first.
ShardingPlan placed_on(ShardingPlan plan, at::Device device);

/// What all ranks must do alike, a line each. Directories are every rank's own; policies by predicate are
/// taken for equal.
std::vector<std::string> lines_of(const ShardingPlan& plan);

/// Collective, blocking. @throws CollectiveMismatch naming the option, and both values, where ranks differ
void require_same_plan(const ShardingPlan& plan, const Communicator& comm);

}  // namespace lockstep::detail
