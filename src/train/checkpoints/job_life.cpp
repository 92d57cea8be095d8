#include "train/checkpoints/job_life.h"

#include <algorithm>
#include <chrono>
#include <string>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/env.h>
#include <lockstep/cluster/slurm_environment.h>

#include "checkpoint/together.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;
using Time = fs::file_time_type;

constexpr auto kRestarts = "TORCHELASTIC_RESTART_COUNT";

bool is_own_start_another() {
  return env::get_int(kRestarts, 0) > 0 || env::get_int("LOCKSTEP_ROUND", 0) > 0 ||
         SlurmEnvironment::restart_count() > 0;
}

// Nanoseconds since 1970; 0: nobody knows.
std::int64_t start_of_own_launcher() { return env::get_int("LOCKSTEP_LAUNCHER_START_NS", 0); }

bool is_any_started_anew(const Communicator& communicator) {
  const auto words = communicator.all_gather_bytes(is_own_start_another() ? "again" : "");
  return std::ranges::any_of(words, [](const auto& word) { return !word.empty(); });
}

// The launcher of a node that came later is younger than the job.
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

// Its time says since when what is written here is this job's.
fs::path mark_of_job(const RunSetup& setup) {
  const auto job = SlurmEnvironment::job_to_requeue();
  return setup.run_dir / "checkpoints" / (job ? ".job_" + *job : ".job");
}

// Nothing else could start this process again.
bool needs_mark(bool has_launcher) {
  return SlurmEnvironment::job_to_requeue() || (!has_launcher && env::get(kRestarts));
}

// On rank 0. A job that SLURM starts again and that has no mark had not begun to train.
std::optional<Time> begin_of_job(const RunSetup& setup, bool is_started_anew,
                                 const std::optional<Time>& start_of_launcher) {
  const auto mark = mark_of_job(setup);
  const bool is_requeued = SlurmEnvironment::restart_count() > 0;
  if (is_started_anew) {
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

JobLife agreed_life(const RunSetup& setup) {
  const auto& communicator = setup.communicator();
  const bool is_started_anew = is_any_started_anew(communicator);
  const auto start = start_of_first_launcher(communicator);
  const auto what = "in run directory " + setup.run_dir.string() + " the begin of the job cannot be noted";
  const auto begin =
      all_or_none(communicator, what, [&] {
        return setup.is_global_zero() ? text_of(begin_of_job(setup, is_started_anew, start)) : std::string();
      }).front();
  if (begin.empty()) return {.is_started_anew = is_started_anew};
  return {.is_started_anew = is_started_anew, .began = Time(Time::duration(std::stoll(begin)))};
}

}  // namespace lockstep::detail
