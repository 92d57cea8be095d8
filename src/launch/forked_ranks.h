// launch_forked() for callers that want to know how it ended.
#pragma once

#include <functional>
#include <optional>

#include <lockstep/launch/launch.h>

#include "launch/supervisor.h"

namespace lockstep::launch {

/// How a launch ended.
struct LaunchEnd {
  int exit_code = 0;
  bool was_asked_to_stop = false;
  std::optional<Failure> failure =
      {};  ///< nothing after success, and after SIGINT or SIGTERM to the supervisor
};

/// As launch_forked().
LaunchEnd run_forked_ranks(const LaunchOptions& options, const std::function<int()>& rank_main);

}  // namespace lockstep::launch
