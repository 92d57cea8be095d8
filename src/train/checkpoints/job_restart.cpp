#include <algorithm>
#include <chrono>
#include <regex>
#include <string>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/cluster/launcher_environments.h>

#include "checkpoint/together.h"
#include "launch/command.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;
using Time = fs::file_time_type;

constexpr auto kRestarts = "TORCHELASTIC_RESTART_COUNT";

bool is_own_start_another() {
  return env::get_int(kRestarts, 0) > 0 || env::get_int("LOCKSTEP_ROUND", 0) > 0 ||
         SlurmEnvironment::restart_count() > 0;
}

// Nanoseconds since 1970; 0 where it is unknown.
std::int64_t start_of_own_launcher() { return env::get_int("LOCKSTEP_LAUNCHER_START_NS", 0); }

bool is_any_restarted(const Communicator& communicator) {
  const auto words = communicator.all_gather_bytes(is_own_start_another() ? "again" : "");
  return std::ranges::any_of(words, [](const auto& word) { return !word.empty(); });
}

// The oldest launcher is as old as the job; a node that joined later has a younger one.
std::optional<Time> start_of_first_launcher(const Communicator& communicator) {
  std::int64_t first = 0;
  for (const auto& text : communicator.all_gather_bytes(std::to_string(start_of_own_launcher()))) {
    const auto start = std::stoll(text);
    if (start > 0 && (first == 0 || start < first)) first = start;
  }
  if (first == 0) return std::nullopt;
  const std::chrono::sys_time<std::chrono::nanoseconds> time{std::chrono::nanoseconds(first)};
  return std::chrono::time_point_cast<Time::duration>(Time::clock::from_sys(time));
}

// A file whose modification time is the begin of the job: newer checkpoints in this folder are the job's own.
fs::path mark_of_job(const RunSetup& setup) {
  const auto job = SlurmEnvironment::job_to_requeue();
  return setup.run_dir / "checkpoints" / (job ? ".job_" + *job : ".job");
}

// Whether only SLURM or torchrun can start this process again, which do not tell when the job began.
bool needs_mark(bool has_launcher) {
  return SlurmEnvironment::job_to_requeue() || (!has_launcher && env::get(kRestarts));
}

// Called on rank 0. A job that SLURM starts again and that has no marker file had not begun to train.
std::optional<Time> begin_of_job(const RunSetup& setup, bool is_restarted,
                                 const std::optional<Time>& start_of_launcher) {
  const auto mark = mark_of_job(setup);
  const bool is_requeued = SlurmEnvironment::restart_count() > 0;
  if (is_restarted) {
    if (start_of_launcher && !is_requeued) return start_of_launcher;
    std::error_code missing;
    const auto begin = fs::last_write_time(mark, missing);
    if (!missing) return begin;
    if (!is_requeued) return std::nullopt;
  }
  if (needs_mark(start_of_launcher.has_value())) write_file_atomically(mark, "");
  return Time::max();
}

std::string text_of(const std::optional<Time>& time) {
  return time ? std::to_string(time->time_since_epoch().count()) : "";
}

}  // namespace

JobRestart agree_on_restart(const RunSetup& setup) {
  const auto& communicator = setup.communicator();
  const bool is_restarted = is_any_restarted(communicator);
  const auto start = start_of_first_launcher(communicator);
  const auto what = "in run directory " + setup.run_dir.string() + " the begin of the job cannot be noted";
  const auto begin =
      all_or_none(communicator, what, [&] {
        return setup.is_global_zero() ? text_of(begin_of_job(setup, is_restarted, start)) : std::string();
      }).front();
  if (begin.empty()) return {.is_restarted = is_restarted};
  return {.is_restarted = is_restarted, .began = Time(Time::duration(std::stoll(begin)))};
}

namespace {

constexpr std::chrono::seconds kDeadline{30};

std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (char& letter : text)
    if (letter == '\n') letter = ' ';
  return text;
}

// Whether `scontrol show job` shows a job in its grace time after a preemption, and not after scancel or at
// the time limit.
bool is_preempted(const std::string& job) {
  const auto state = launch::run_command({"scontrol", "show", "job", job, "--oneliner"}, kDeadline).output;
  return std::regex_search(state, std::regex(" JobState=(RUNNING|SIGNALING) ")) &&
         std::regex_search(state, std::regex(" PreemptTime=[0-9]"));
}

}  // namespace

std::string requeue_job() try {
  const auto job = SlurmEnvironment::job_to_requeue().value();
  const auto result = launch::run_command({"scontrol", "requeue", job}, kDeadline);
  if (result.status == 0) {
    log_info("job " + job + " is saved and will start again");
    return {};
  }
  return "scontrol requeue " + job + " exited with " + std::to_string(result.status) + ": " +
         one_line(result.output);
} catch (const Error& error) {
  return std::string("the job cannot be started again: ") + error.what();
}

bool requeue_preempted_job() try {
  if (!is_preempted(SlurmEnvironment::job_to_requeue().value())) return false;
  const auto refusal = requeue_job();
  if (!refusal.empty()) log_warning(refusal);
  return refusal.empty();
} catch (const Error& error) {
  log_warning(error.what());
  return false;
}

}  // namespace lockstep::detail
