#include <lockstep/launch/join.h>

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cctype>
#include <charconv>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/rank_status.h>
#include <lockstep/cluster/detect.h>
#include <lockstep/cluster/environment.h>
#include <lockstep/launch/errors.h>

#include "base/diagnoses.h"
#include "base/failure_place.h"
#include "base/job_log.h"
#include "base/memory_failure.h"
#include "base/system.h"
#include "cluster/environment_end.h"
#include "launch/posix.h"
#include "launch/rank_process.h"
#include "launch/run_files.h"
#include "launch/signals.h"
#include "launch/status_table.h"
#include "launch/supervisor.h"

namespace lockstep {
namespace {

// OpenMP allows a list with a number for each level of nesting, and ignores text that it cannot parse.
int number_at_start(const std::string& text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// A descriptor that had to survive one exec must not survive another.
void keep_private(const char* variable) {
  const auto fd = static_cast<int>(env::get_int(variable, -1));
  if (fd >= 0) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void attach_status() {
  if (!env::get("LOCKSTEP_STATUS_FD")) return;
  const auto fd = static_cast<int>(env::require_int("LOCKSTEP_STATUS_FD"));
  launch::attach_rank_status(fd, local_world_size().value_or(0), detect_environment()->local_rank());
  env::unset("LOCKSTEP_STATUS_FD");  // closed, and not meant for programs that this rank may start
}

std::terminate_handler usual_end = nullptr;

// Notes the text of an exception that leaves main(), which nothing else would record.
void note_uncaught() {
  try {
    if (const auto uncaught = std::current_exception()) std::rethrow_exception(uncaught);
  } catch (const std::exception& error) {
    note_failure(error);
  } catch (...) {
  }
  cluster::end_environments();
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
  watch_for_uncaught();
  if (!started_by_launcher()) return;
  if (const auto rank = told_rank()) {
    ::prctl(PR_SET_NAME, ("rank-" + *rank).c_str());
    detail::set_rank_of_job_log(number_at_start(*rank));
  }
  keep_private("LOCKSTEP_LISTEN_FD");
  keep_private("LOCKSTEP_STORE_TOKEN_FD");
  attach_status();
}

int threads_per_rank() {
  const int told = number_at_start(env::get("OMP_NUM_THREADS").value_or(""));
  return told > 0 ? told : launch::share_of_processors(local_world_size().value_or(1));
}

namespace {

// The first line without control characters: texts of other libraries continue with stack frames.
std::string one_line(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  for (char& letter : line) {
    if (std::iscntrl(static_cast<unsigned char>(letter)) != 0) letter = '?';
  }
  return line;
}

int exit_code_of(const std::exception& error) {
  if (const auto* process = dynamic_cast<const ProcessError*>(&error)) return process->exit_code();
  if (dynamic_cast<const Terminated*>(&error) != nullptr) return Terminated::kExitCode;
  return dynamic_cast<const ConfigError*>(&error) != nullptr ? launch::kExitUsage : launch::kExitFailed;
}

// Whether a supervisor reads and reports what this rank has noted.
bool is_supervised() { return env::get("LOCKSTEP_LAUNCHED") && !launch::is_status_lost(); }

// All ranks end together; one of them prints it.
void print_end(const Terminated& end) {
  if (!is_supervised() && told_rank().value_or("0") == "0")
    std::cerr << "lockstep: " + one_line(end.what()) + "\n";
}

void print_unless_supervised(const std::string& text) {
  if (is_supervised()) return;
  const auto rank = told_rank();
  const auto who = rank ? "rank " + *rank + " (pid " + std::to_string(::getpid()) + ") failed: " : "";
  std::cerr << "lockstep: " + who + one_line(text) + "\n";
}

}  // namespace

void note_failure(const std::exception& error) {
  const auto outcome = dynamic_cast<const PeerLost*>(&error)  ? RankOutcome::kPeerFailed
                       : dynamic_cast<const Timeout*>(&error) ? RankOutcome::kTimedOut
                                                              : RankOutcome::kFailed;
  set_outcome(outcome, detail::failure_text(error));
}

int launch::guard_rank(const std::function<int()>& body) {
  struct AtEnd {
    ~AtEnd() { cluster::end_environments(); }
  } const at_end;
  occupy_standard_descriptors();
  heed_signals_as_first_process();
  try {
    detail::diagnoses();  // a wrong word is refused here, and not by what tells of a failure
    const int code = body();
    if (code == 0) set_outcome(RankOutcome::kDone);
    return code;
  } catch (const Terminated& end) {
    note_failure(end);
    print_end(end);
    return exit_code_of(end);
  } catch (const std::exception& error) {
    note_failure(error);
    print_unless_supervised(detail::failure_text(error));
    return exit_code_of(error);
  } catch (...) {
    const auto text = "an exception that is no std::exception" + detail::failure_place();
    set_outcome(RankOutcome::kFailed, text);
    print_unless_supervised(text);
    return launch::kExitFailed;
  }
}

int run_rank(const std::function<void()>& body, const std::filesystem::path& run_dir) {
  const int code = launch::guard_rank([&] {
    if (env::get("LOCKSTEP_LAUNCHED")) join_launcher();
    body();
    return 0;
  });
  const bool has_failed = code != 0 && code != Terminated::kExitCode;
  const bool is_alone = !run_dir.empty() && !started_by_launcher() && std::filesystem::is_directory(run_dir);
  if (has_failed && is_alone) launch::write_lone_failure(run_dir, code);
  return code;
}

Terminated::~Terminated() = default;

ProcessError::ProcessError(const ErrorParts& parts, int rank, int exit_code)
    : Error("launch", parts), rank_(rank), exit_code_(exit_code) {}

ProcessError::~ProcessError() = default;

}  // namespace lockstep
