// What one rank is given at its start: its place in the job, as environment variables and descriptors.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/launch/launch.h>

namespace lockstep::launch {

/// One rank to be started. `unset` lists variables of an outer launch that must not reach it.
struct RankPlan {
  int rank = 0;
  int local_rank = 0;
  std::string name = {};  ///< comm name, rank-N
  std::map<std::string, std::string> variables = {};
  std::vector<std::string> unset = {};
  std::vector<int> inherited_fds = {};  ///< must stay open in a program that the rank executes
  std::vector<int> processors = {};  ///< that a program may use which the rank executes; empty: all of ours
  bool leads_session = false;        ///< signals go to it and all processes that it starts
};

/// What all ranks of a launch share. Descriptors are -1 where there is none.
struct LaunchContext {
  std::string_view launched;  ///< value of LOCKSTEP_LAUNCHED
  int port = 0;
  int listen_fd = -1;
  int status_fd = -1;
  int first_rank = -1;  ///< of this node; -1: all nodes have as many ranks
  int world_size = 0;   ///< of the job; 0: all nodes have as many ranks
};

/// The plans of this node's ranks, by local rank.
std::vector<RankPlan> plan_ranks(const LaunchOptions& options, const LaunchContext& context);

}  // namespace lockstep::launch
