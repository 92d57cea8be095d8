// This program with a rank's environment, laid out before the fork: after it, where other threads
// existed, not even memory may be allocated.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launch/rank_plan.h"

namespace lockstep::launch {

/// Arguments and environment of one rank.
class ExecImage {
 public:
  /// @param argv borrowed until execute()
  ExecImage(const RankPlan& plan, std::span<char* const> argv);
  ExecImage(ExecImage&&) = default;

  /// Becomes the program. Returns only when that fails. Safe in a signal handler.
  void execute() const;

 private:
  std::vector<char*> argv_;
  std::vector<std::string> variables_;
  std::vector<char*> envp_;
  std::vector<int> inherited_fds_;
};

/// One image per plan.
std::vector<ExecImage> make_images(std::span<const RankPlan> plans, std::span<char* const> argv);

}  // namespace lockstep::launch
