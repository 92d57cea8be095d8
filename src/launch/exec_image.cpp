#include "launch/exec_image.h"

#include <fcntl.h>
#include <unistd.h>

#include <lockstep/base/env.h>

namespace lockstep::launch {

ExecImage::ExecImage(const RankPlan& plan, std::span<char* const> argv)
    : argv_(argv.begin(), argv.end()), inherited_fds_(plan.inherited_fds) {
  argv_.push_back(nullptr);
  auto merged = env::with_prefix("");
  for (const auto& name : plan.unset) merged.erase(name);
  for (const auto& [name, value] : plan.variables) merged[name] = value;
  for (const auto& [name, value] : merged) variables_.push_back(name + "=" + value);
  for (auto& variable : variables_) envp_.push_back(variable.data());
  envp_.push_back(nullptr);
}

void ExecImage::execute() const {
  for (const int fd : inherited_fds_) ::fcntl(fd, F_SETFD, 0);
  ::execve("/proc/self/exe", argv_.data(), envp_.data());
}

std::vector<ExecImage> make_images(std::span<const RankPlan> plans, std::span<char* const> argv) {
  std::vector<ExecImage> images;
  for (const auto& plan : plans) images.emplace_back(plan, argv);
  return images;
}

}  // namespace lockstep::launch
