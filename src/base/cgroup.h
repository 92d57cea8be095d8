// The control groups that this process is in, and what they allow.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// A group of version 2, or of one controller of version 1.
struct Cgroup {
  std::filesystem::path mount;  ///< where the hierarchy begins
  std::filesystem::path path;   ///< of the group, below `mount`; a container may not see it
  bool is_version_2 = true;
};

/// This process's groups that may have `controller`, such as "memory". `proc` and `cgroups` are where the
/// kernel shows them. Source: cgroups(7), proc_pid_cgroup(5).
std::vector<Cgroup> own_cgroups(std::string_view controller, const std::filesystem::path& proc,
                                const std::filesystem::path& cgroups);

/// The least that a group of this process and those around it allow; nothing where none limits it.
struct CgroupLimits {
  std::optional<std::int64_t> memory_bytes = {};
  std::optional<double> processors = {};   ///< time of so many, 0.5 of a half one
  std::optional<std::int64_t> tasks = {};  ///< processes and threads
};

LOCKSTEP_API CgroupLimits cgroup_limits(const std::filesystem::path& proc = "/proc",
                                        const std::filesystem::path& cgroups = "/sys/fs/cgroup");

}  // namespace lockstep::detail
