// launch_forked() for callers that need the details of its end, and checks that all ways to start ranks
// share.
#pragma once

#include <functional>
#include <optional>

#include <lockstep/launch/launch_options.h>

#include "launch/supervisor.h"

namespace lockstep::launch {

/// As run_rank(), for a body that has an exit code of its own.
int guard_rank(const std::function<int()>& body);

/// How a launch ended.
struct LaunchEnd {
  int exit_code = 0;
  bool was_asked_to_stop = false;
  std::optional<Failure> failure =
      {};  ///< nothing after success, and after SIGINT or SIGTERM to the supervisor
};

/// As launch_forked().
LaunchEnd run_forked_ranks(const LaunchOptions& options, const std::function<int()>& rank_main);

/// `options` with defaults filled in, and with an address that getaddrinfo() accepts.
/// @throws ConfigError naming the field that is out of range
LaunchOptions settled(LaunchOptions options);

/// @throws ConfigError when this process is a rank already
void refuse_in_rank();

}  // namespace lockstep::launch
