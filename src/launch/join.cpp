#include <lockstep/launch/join.h>

#include <fcntl.h>
#include <sys/prctl.h>

#include <exception>
#include <string>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/cluster/detect.h>
#include <lockstep/cluster/external_environment.h>
#include <lockstep/launch/run_rank.h>

#include "launch/status_table.h"

namespace lockstep {
namespace {

// What had to survive one exec must not survive another.
void keep_private(const char* variable) {
  const auto fd = static_cast<int>(env::get_int(variable, -1));
  if (fd >= 0) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void attach_status() {
  if (!env::get("LOCKSTEP_STATUS_FD")) return;
  const auto fd = static_cast<int>(env::require_int("LOCKSTEP_STATUS_FD"));
  launch::attach_rank_status(fd, local_world_size().value_or(0), detect_environment()->local_rank());
  env::unset("LOCKSTEP_STATUS_FD");  // closed, and no business of programs that this rank may start
}

std::terminate_handler usual_end = nullptr;

// Of a program that lets exceptions out of main() nobody else notes what they said.
void note_uncaught() {
  try {
    if (const auto uncaught = std::current_exception()) std::rethrow_exception(uncaught);
  } catch (const std::exception& error) {
    note_failure(error);
  } catch (...) {
  }
  usual_end();
}

void watch_for_uncaught() {
  if (std::get_terminate() != note_uncaught) usual_end = std::set_terminate(note_uncaught);
}

}  // namespace

bool started_by_launcher() { return detect_environment()->creates_processes_externally(); }

std::optional<std::string> told_rank() {
  if (auto rank = env::get("RANK")) return rank;
  try {
    const auto environment = detect_environment();
    if (const auto* external = dynamic_cast<const ExternalEnvironment*>(environment.get()))
      return std::to_string(external->global_rank());
  } catch (const ConfigError&) {
  }
  return std::nullopt;
}

std::optional<int> local_world_size() { return detect_environment()->local_world_size(); }

void join_launcher() {
  if (!started_by_launcher()) return;
  if (const auto rank = told_rank()) ::prctl(PR_SET_NAME, ("rank-" + *rank).c_str());
  keep_private("LOCKSTEP_LISTEN_FD");
  keep_private("LOCKSTEP_STORE_TOKEN_FD");
  attach_status();
  watch_for_uncaught();
}

}  // namespace lockstep
