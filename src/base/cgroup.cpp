#include "base/cgroup.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

// Version 1 says by such numbers that there is no limit.
constexpr std::int64_t kNoMemoryLimit = std::int64_t{1} << 62;

// The numbers in a file, up to what is none ("max").
std::vector<std::int64_t> limits_in(const fs::path& file) {
  std::ifstream stream(file);
  std::vector<std::int64_t> numbers;
  for (std::int64_t number = 0; stream >> number;) numbers.push_back(number);
  return numbers;
}

std::optional<double> one_limit(const fs::path& file) {
  const auto numbers = limits_in(file);
  if (numbers.empty() || numbers[0] < 0 || numbers[0] >= kNoMemoryLimit) return std::nullopt;
  return static_cast<double>(numbers[0]);
}

std::optional<double> processors_of(const fs::path& folder, bool is_version_2) {
  std::vector<std::int64_t> quota;
  if (is_version_2) {
    quota = limits_in(folder / "cpu.max");
  } else {
    quota = limits_in(folder / "cpu.cfs_quota_us");
    const auto period = limits_in(folder / "cpu.cfs_period_us");
    quota.insert(quota.end(), period.begin(), period.end());
  }
  if (quota.size() != 2 || quota[0] <= 0 || quota[1] <= 0) return std::nullopt;
  return static_cast<double>(quota[0]) / static_cast<double>(quota[1]);
}

using ReadLimit = std::optional<double> (*)(const fs::path& folder, bool is_version_2);

std::optional<double> memory_of(const fs::path& folder, bool is_version_2) {
  return one_limit(folder / (is_version_2 ? "memory.max" : "memory.limit_in_bytes"));
}

std::optional<double> tasks_of(const fs::path& folder, bool) { return one_limit(folder / "pids.max"); }

std::optional<double> least_limit(const std::vector<Cgroup>& groups, ReadLimit read) {
  std::optional<double> least;
  const auto take = [&](const Cgroup& group, const fs::path& path) {
    const auto limit = read(path.empty() ? group.mount : group.mount / path, group.is_version_2);
    if (limit && (!least || *limit < *least)) least = limit;
  };
  for (const auto& group : groups)
    for (auto path = group.path;; path = path.parent_path()) {
      take(group, path);
      if (path.empty()) break;
    }
  return least;
}

std::optional<std::int64_t> whole(std::optional<double> number) {
  return number ? std::optional(static_cast<std::int64_t>(*number)) : std::nullopt;
}

// Whether `controllers`, as in "cpu,cpuacct", has `name`.
bool has_controller(std::string_view controllers, std::string_view name) {
  for (std::size_t begin = 0; begin <= controllers.size();) {
    const auto end = std::min(controllers.find(',', begin), controllers.size());
    if (controllers.substr(begin, end - begin) == name) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

// Lines are NUMBER:CONTROLLERS:PATH; version 2 names no controllers.
std::vector<Cgroup> own_cgroups(std::string_view controller, const fs::path& proc, const fs::path& cgroups) {
  std::vector<Cgroup> groups;
  std::ifstream lines(proc / "self" / "cgroup");
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos || second + 1 >= line.size()) continue;
    const auto controllers = std::string_view(line).substr(first + 1, second - first - 1);
    const fs::path path = line.substr(second + 2);  // without its slash
    if (controllers.empty())
      groups.push_back({.mount = cgroups, .path = path});
    else if (has_controller(controllers, controller))
      groups.push_back({.mount = cgroups / controller, .path = path, .is_version_2 = false});
  }
  return groups;
}

CgroupLimits cgroup_limits(const fs::path& proc, const fs::path& cgroups) {
  const auto limit = [&](std::string_view controller, ReadLimit read) {
    return least_limit(own_cgroups(controller, proc, cgroups), read);
  };
  return {.memory_bytes = whole(limit("memory", &memory_of)),
          .processors = limit("cpu", &processors_of),
          .tasks = whole(limit("pids", &tasks_of))};
}

}  // namespace lockstep::detail
