// What this machine has and allows: processors, memory, limits, memory that processes share. Facts are read
// from the system by the functions without arguments, and judged by those that take them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/launch/binding.h>

#include "base/cgroup.h"
#include "doctor/findings.h"

namespace lockstep::doctor {

struct ProcessorFacts {
  std::string model = {};                   ///< as the kernel calls it; may be empty
  int online = 0;                           ///< processors of the machine
  int usable = 0;                           ///< by the affinity of this process
  std::vector<CpuCore> cores = {};          ///< those to which the usable ones belong
  std::optional<double> quota = {};         ///< of the control group, in processors
  std::optional<std::string> threads = {};  ///< OMP_NUM_THREADS
};
ProcessorFacts processor_facts();
LOCKSTEP_API Findings judge(const ProcessorFacts& facts);

/// In bytes; no limit: none.
struct MemoryFacts {
  std::int64_t total = 0;
  std::int64_t available = 0;
  std::optional<std::int64_t> cgroup = {};
  std::optional<std::int64_t> data = {};           ///< ulimit -d
  std::optional<std::int64_t> address_space = {};  ///< ulimit -v
  std::int64_t kills = 0;  ///< processes that the kernel has killed for want of memory
};
LOCKSTEP_API MemoryFacts memory_facts(const std::filesystem::path& proc = "/proc",
                                      const std::filesystem::path& cgroups = "/sys/fs/cgroup");
LOCKSTEP_API Findings judge(const MemoryFacts& facts);

/// No limit: none.
struct LimitFacts {
  int processors = 1;  ///< that ranks may use
  std::optional<std::int64_t> open_files = {};
  std::optional<std::int64_t> most_open_files =
      {};  ///< the hard limit, up to which lockstep raises the other
  std::optional<std::int64_t> locked_bytes = {};
  bool has_infiniband = false;
  std::optional<std::int64_t> processes = {};  ///< ulimit -u
  std::optional<std::int64_t> tasks = {};      ///< pids.max of the control group
};
LimitFacts limit_facts();
LOCKSTEP_API Findings judge(const LimitFacts& facts);

struct SharedMemoryFacts {
  std::string failure = {};  ///< why there is no memory for processes to share; empty: there is
  std::optional<std::string> variable = {};        ///< LOCKSTEP_SHARED_MEMORY
  std::optional<std::int64_t> dev_shm_bytes = {};  ///< size of /dev/shm; none: it is not there
};
SharedMemoryFacts shared_memory_facts();
LOCKSTEP_API Findings judge(const SharedMemoryFacts& facts);

}  // namespace lockstep::doctor
