// A rank as its supervisor sees it: the plan for its start, the start itself, and its process.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/launch/launch_options.h>

#include "launch/signals.h"

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

/// The processors that this process may use, divided by `ranks`; at least 1.
int share_of_processors(int ranks);

/// Arguments and environment of one rank.
class ExecImage {
 public:
  /// `program` is a path; `/proc/self/exe` is this one.
  ExecImage(const RankPlan& plan, const std::filesystem::path& program, std::vector<std::string> arguments);
  ExecImage(ExecImage&&) = default;

  /// Becomes the program. Returns only when that fails. Safe in a signal handler.
  void execute() const;

 private:
  std::string program_;
  std::vector<std::string> arguments_;
  std::vector<char*> argv_;
  std::vector<std::string> variables_;
  std::vector<char*> envp_;
  std::vector<int> inherited_fds_;
  std::vector<cpu_set_t> processors_;  ///< empty: as they are
};

/// One image per plan.
std::vector<ExecImage> make_images(std::span<const RankPlan> plans, const std::filesystem::path& program,
                                   const std::vector<std::string>& arguments);

/// How a process ended: by a signal, or with an exit code where `signal` is 0.
struct ProcessEnd {
  int signal = 0;
  int exit_code = 0;

  bool failed() const { return signal != 0 || exit_code != 0; }
  /// What a shell would report.
  int status() const { return signal != 0 ? kExitSignalled + signal : exit_code; }
};

/// A rank that was started.
struct RankProcess {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = -1;
  UniqueFd pidfd = {};  ///< readable once the process has ended; closed when that was noticed
  std::optional<ProcessEnd> end = {};
  bool told_to_stop = false;   ///< by the supervisor, so that its end is nobody's fault
  bool leads_session = false;  ///< signals go to it and all processes that it started

  bool alive() const { return !end; }
};

/// Sends a signal to `process`, if it has not ended.
void send_signal(const RankProcess& process, int signal);

/// Ends `process` if it has not ended, and forgets it.
void kill_and_reap(RankProcess& process);

/// Forks one process per plan. Each is tied to this one's life, gets its name and its signals back and
/// calls `rank_main`, which must not return and, where threads exist, may only do what is safe in a
/// signal handler.
/// @throws Error when a process cannot be started; those that were are killed
std::vector<RankProcess> start_ranks(std::span<const RankPlan> plans, SignalScope& signals,
                                     const std::function<void(const RankPlan&)>& rank_main);

}  // namespace lockstep::launch
