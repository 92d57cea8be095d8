#include "launch/rank_plan.h"

#include <lockstep/base/env.h>

#include "launch/threads.h"

namespace lockstep::launch {
namespace {

std::map<std::string, std::string> place_in_job(const LaunchOptions& options, const LaunchContext& context,
                                                int rank, int local_rank) {
  const int world_size = context.world_size != 0 ? context.world_size : options.nprocs * options.num_nodes;
  return {{"RANK", std::to_string(rank)},
          {"LOCAL_RANK", std::to_string(local_rank)},
          {"WORLD_SIZE", std::to_string(world_size)},
          {"LOCAL_WORLD_SIZE", std::to_string(options.nprocs)},
          {"NODE_RANK", std::to_string(options.node_rank)},
          {"GROUP_RANK", std::to_string(options.node_rank)},
          {"GROUP_WORLD_SIZE", std::to_string(options.num_nodes)},
          {"MASTER_ADDR", options.main_address},
          {"MASTER_PORT", std::to_string(context.port)}};
}

void hand_down(RankPlan& plan, const char* variable, int fd) {
  if (fd < 0) {
    plan.unset.emplace_back(variable);
    return;
  }
  plan.variables[variable] = std::to_string(fd);
  plan.inherited_fds.push_back(fd);
}

RankPlan plan_rank(const LaunchOptions& options, const LaunchContext& context, int local_rank) {
  const int first = context.first_rank >= 0 ? context.first_rank : options.node_rank * options.nprocs;
  const int rank = first + local_rank;
  RankPlan plan{.rank = rank,
                .local_rank = local_rank,
                .name = "rank-" + std::to_string(rank),
                .variables = place_in_job(options, context, rank, local_rank),
                .unset = {},
                .inherited_fds = {}};
  plan.variables["LOCKSTEP_LAUNCHED"] = context.launched;
  if (!env::get("OMP_NUM_THREADS")) {
    plan.variables["OMP_NUM_THREADS"] = std::to_string(share_of_processors(options.nprocs));
  }
  hand_down(plan, "LOCKSTEP_LISTEN_FD", rank == 0 ? context.listen_fd : -1);
  hand_down(plan, "LOCKSTEP_STATUS_FD", context.status_fd);
  return plan;
}

}  // namespace

std::vector<RankPlan> plan_ranks(const LaunchOptions& options, const LaunchContext& context) {
  std::vector<RankPlan> plans;
  for (int local_rank = 0; local_rank < options.nprocs; ++local_rank) {
    plans.push_back(plan_rank(options, context, local_rank));
  }
  return plans;
}

}  // namespace lockstep::launch
