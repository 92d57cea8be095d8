// A program with a rank's arguments and environment, laid out before the fork: after it, where other threads
// existed, not even memory may be allocated.
#pragma once

#include <sched.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "launch/rank_plan.h"

namespace lockstep::launch {

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

}  // namespace lockstep::launch
