#include <lockstep/launch/join.h>

#include <fcntl.h>
#include <sys/prctl.h>

#include <string>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/cluster/detect.h>

#include "launch/status_table.h"

namespace lockstep {
namespace {

// It had to survive one exec, and must not survive another.
void keep_socket_private() {
  const auto fd = static_cast<int>(env::get_int("LOCKSTEP_LISTEN_FD", -1));
  if (fd >= 0) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void attach_status() {
  if (!env::get("LOCKSTEP_STATUS_FD")) return;
  const auto fd = static_cast<int>(env::require_int("LOCKSTEP_STATUS_FD"));
  launch::attach_rank_status(fd, local_world_size().value_or(0), detect_environment()->local_rank());
  env::unset("LOCKSTEP_STATUS_FD");  // closed, and no business of programs that this rank may start
}

}  // namespace

bool started_by_launcher() { return detect_environment()->creates_processes_externally(); }

std::optional<int> local_world_size() {
  if (!env::get("LOCAL_WORLD_SIZE")) return std::nullopt;
  const auto size = env::require_int("LOCAL_WORLD_SIZE");
  if (size < 1 || size > 1'000'000) {
    throw ConfigError("launch", {.what = "environment variable LOCAL_WORLD_SIZE",
                                 .expected = "1..1000000",
                                 .got = std::to_string(size)});
  }
  return static_cast<int>(size);
}

void join_launcher() {
  if (!started_by_launcher()) return;
  if (const auto rank = env::get("RANK")) ::prctl(PR_SET_NAME, ("rank-" + *rank).c_str());
  keep_socket_private();
  attach_status();
}

}  // namespace lockstep
