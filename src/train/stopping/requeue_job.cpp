#include "train/stopping/requeue_job.h"

#include <chrono>
#include <regex>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/cluster/slurm_environment.h>

#include "launch/command.h"

namespace lockstep::detail {
namespace {

constexpr std::chrono::seconds kDeadline{30};

std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (char& letter : text)
    if (letter == '\n') letter = ' ';
  return text;
}

// What `scontrol show job` says in the grace of a preempted job, and not after scancel or at the time limit.
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
