#include "launch/exec_image.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include <lockstep/base/env.h>

namespace lockstep::launch {
namespace {

std::vector<cpu_set_t> mask_of(const std::vector<int>& processors) {
  if (processors.empty()) return {};
  const auto sets = static_cast<std::size_t>(*std::ranges::max_element(processors)) / CPU_SETSIZE + 1;
  std::vector<cpu_set_t> mask(sets);
  for (const int processor : processors)
    CPU_SET_S(static_cast<std::size_t>(processor), sets * sizeof(cpu_set_t), mask.data());
  return mask;
}

}  // namespace

ExecImage::ExecImage(const RankPlan& plan, const std::filesystem::path& program,
                     std::vector<std::string> arguments)
    : program_(program.string()),
      arguments_(std::move(arguments)),
      inherited_fds_(plan.inherited_fds),
      processors_(mask_of(plan.processors)) {
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
  if (!processors_.empty() &&
      ::sched_setaffinity(0, processors_.size() * sizeof(cpu_set_t), processors_.data()) != 0)
    return;
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
