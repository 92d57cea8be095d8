#include "train/checkpoints/interruption.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <regex>
#include <string>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/cluster/launcher_environments.h>
#include <lockstep/launch/errors.h>

#include "checkpoint/together.h"
#include "launch/command.h"
#include "launch/signals.h"
#include "train/checkpoints/run_checkpoints.h"

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

// Asks SLURM to start this process's job again (`scontrol requeue`). SLURM then soon ends the processes of
// the job. Returns an empty text where SLURM agrees, else its reason as a sentence. Blocks for at most 30 s.
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

// The same for a preempted job: SLURM starts it again by itself only if it still runs when its grace time is
// over. Returns false where the job is not preempted, and where SLURM refuses, which is logged.
bool requeue_preempted_job() try {
  if (!is_preempted(SlurmEnvironment::job_to_requeue().value())) return false;
  const auto refusal = requeue_job();
  if (!refusal.empty()) log_warning(refusal);
  return refusal.empty();
} catch (const Error& error) {
  log_warning(error.what());
  return false;
}

constexpr std::chrono::milliseconds kBetweenExchanges{500};
constexpr std::int64_t kMostStepsBetween = 100;  // steps may become slow

}  // namespace

// The variables of the job are read once, not for every micro-batch.
Interruption::Interruption(const FitParts& fit)
    : fit_(fit), cadence_(AgreementCadence::Rule::kLargest, kBetweenExchanges, kMostStepsBetween) {
  if (const auto* slurm = requeuing_environment(fit.setup)) requeue_signal_ = slurm->requeue_signal();
}

StopSignal Interruption::own_signal() const {
  if (requeue_signal_ && launch::is_flagged(*requeue_signal_)) return StopSignal::kRequeue;
  return launch::is_flagged(SIGTERM) ? StopSignal::kTerminate : StopSignal::kNone;
}

StopSignal Interruption::agreed_signal() {
  const auto& communicator = fit_.setup.communicator();
  if (communicator.size() == 1) return own_signal();
  if (!cadence_.is_time()) return StopSignal::kNone;
  return static_cast<StopSignal>(cadence_.agree(static_cast<std::int64_t>(own_signal()), communicator));
}

void Interruption::heed() {
  if (fit_.checkpoints.are_off) return;
  switch (agreed_signal()) {
    case StopSignal::kNone:
      return;
    case StopSignal::kTerminate:
      terminate();
    case StopSignal::kRequeue:
      requeue();
  }
}

void Interruption::end(const std::string& why, const std::string& saved) const {
  throw Terminated("train", {.what = why + " after epoch " + std::to_string(fit_.progress.epoch) + ", step " +
                                     std::to_string(fit_.progress.global_step),
                             .hint = saved});
}

void Interruption::terminate() {
  launch::lower_flag(SIGTERM);
  fit_.checkpoints.on_interruption();
  if (fit_.setup.options.enable_checkpointing)
    end_local_checkpoints(fit_.setup, fit_.checkpoints);  // what is on disk goes on
  const bool is_saved = fit_.setup.options.enable_checkpointing && !fit_.checkpoints.save_failure;
  const bool is_requeued = is_requeued_for_another_job();
  end(is_requeued ? "this job was preempted and will start again: it has stopped" : "ended by SIGTERM",
      is_saved ? "--resume auto goes on from last.ckpt in " + fit_.setup.run_dir.string()
               : "nothing was saved to go on from");
}

bool Interruption::is_requeued_for_another_job() const {
  if (!requeue_signal_) return false;
  const bool is_requeued = fit_.setup.is_global_zero() && requeue_preempted_job();
  return !fit_.setup.communicator().broadcast_bytes(is_requeued ? "requeued" : "").empty();
}

void Interruption::requeue() {
  launch::lower_flag(*requeue_signal_);
  const auto& communicator = fit_.setup.communicator();
  const bool is_first = fit_.setup.is_global_zero();
  const fs::path folder =
      communicator.broadcast_bytes(is_first ? next_hpc_checkpoint(fit_.setup).string() : "");
  if (!save(folder, is_first ? last_hpc_checkpoint(fit_.setup) : fs::path())) return;
  const auto refusal = communicator.broadcast_bytes(is_first ? requeue_job() : "");
  if (refusal.empty()) {
    end_local_checkpoints(fit_.setup, fit_.checkpoints);
    end("this job will start again: it has stopped", "it goes on from " + folder.string());
  }
  if (is_first) log_warning(refusal + "; the run is saved in " + folder.string() + ", and training goes on");
}

// Waits for checkpoints that are being written. Returns false where this one could not be written: without it
// the job would start from the beginning each time.
bool Interruption::save(const fs::path& folder, const fs::path& replaced) {
  try {
    await_save(fit_);
    save_fit(fit_, folder, {.replaced = replaced}, WriteMode::kInForeground);
    return true;
  } catch (const IoError& error) {
    if (fit_.setup.is_global_zero())
      log_warning(std::string(error.what()) + "; the job is not started again, and training goes on");
    return false;
  }
}

}  // namespace lockstep::detail
