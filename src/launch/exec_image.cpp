#include "launch/exec_image.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include <lockstep/base/env.h>

namespace lockstep::launch {

ExecImage::ExecImage(const RankPlan& plan, const std::filesystem::path& program,
                     std::vector<std::string> arguments)
    : program_(program.string()), arguments_(std::move(arguments)), inherited_fds_(plan.inherited_fds) {
  for (auto& argument : arguments_) argv_.push_back(argument.data());
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
  ::execve(program_.c_str(), argv_.data(), envp_.data());
}

std::vector<ExecImage> make_images(std::span<const RankPlan> plans, const std::filesystem::path& program,
                                   const std::vector<std::string>& arguments) {
  std::vector<ExecImage> images;
  images.reserve(plans.size());
  for (const auto& plan : plans) images.emplace_back(plan, program, arguments);
  return images;
}

}  // namespace lockstep::launch
