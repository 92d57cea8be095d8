#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <fstream>
#include <string>

#include <lockstep/base/env.h>
#include <lockstep/base/unique_fd.h>

#include "base/format.h"
#include "base/memory_failure.h"
#include "doctor/machine.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kSharedBytes = 2 << 20;  // of each rank and group

std::int64_t meminfo_bytes(const fs::path& proc, const std::string& key) {
  std::ifstream lines(proc / "meminfo");
  for (std::string word; lines >> word;) {
    std::int64_t kib = 0;
    if (word == key + ":" && lines >> kib) return kib * 1024;
  }
  return 0;
}

std::optional<std::int64_t> memory_limit(__rlimit_resource kind) {
  rlimit limit{};
  if (::getrlimit(kind, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return static_cast<std::int64_t>(limit.rlim_cur);
}

// As ranks make and open it.
std::string failure_of_shared_memory() {
  const UniqueFd made(::memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made) return "memfd_create: " + detail::system_error_text(errno);
  if (::ftruncate(made.get(), kSharedBytes) != 0 || ::fallocate(made.get(), 0, 0, kSharedBytes) != 0)
    return "fallocate: " + detail::system_error_text(errno);
  const auto path = "/proc/self/fd/" + std::to_string(made.get());
  const UniqueFd opened(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  return opened ? "" : path + ": " + detail::system_error_text(errno);
}

std::optional<std::int64_t> size_of_dev_shm() {
  struct statvfs system {};
  if (::statvfs("/dev/shm", &system) != 0) return std::nullopt;
  return static_cast<std::int64_t>(system.f_blocks) * static_cast<std::int64_t>(system.f_frsize);
}

}  // namespace

MemoryFacts memory_facts(const fs::path& proc, const fs::path& cgroups) {
  return {.total = meminfo_bytes(proc, "MemTotal"),
          .available = meminfo_bytes(proc, "MemAvailable"),
          .cgroup = detail::cgroup_limits(proc, cgroups).memory_bytes,
          .data = memory_limit(RLIMIT_DATA),
          .address_space = memory_limit(RLIMIT_AS),
          .kills = detail::memory_kills(proc, cgroups)};
}

Findings judge(const MemoryFacts& facts) {
  auto all = memory_text(facts.total) + ", of which " + memory_text(facts.available) + " are available";
  Findings findings{with_value(ok(std::move(all)), static_cast<double>(facts.available), "bytes")};
  if (facts.cgroup && *facts.cgroup < facts.total)
    findings.push_back(
        with_value(note("The control group (a container, a SLURM step) may have " +
                        memory_text(*facts.cgroup) + " in all; beyond it the kernel kills a rank."),
                   static_cast<double>(*facts.cgroup), "bytes"));
  for (const auto& [limit, name] : {std::pair{facts.data, "-d"}, {facts.address_space, "-v"}})
    if (limit)
      findings.push_back(with_value(note("ulimit " + std::string(name) + " allows each process " +
                                             memory_text(*limit) + "; beyond it an allocation fails.",
                                         "Raise it where ranks say that they have not enough memory."),
                                    static_cast<double>(*limit), "bytes"));
  if (std::min(facts.available, facts.cgroup.value_or(facts.available)) < kGiB)
    findings.push_back(warning("Less than 1 GiB is left for ranks, each of which loads LibTorch.",
                               "End other programs, or take a machine or a limit with more memory; "
                               "lockstep advise tells what a model takes."));
  if (facts.kills > 0)
    findings.push_back(with_value(
        note("The kernel has killed processes here for want of memory: " + std::to_string(facts.kills) +
                 " in this control group, or on this machine since it was started.",
             "dmesg names them."),
        static_cast<double>(facts.kills), "processes"));
  return findings;
}

SharedMemoryFacts shared_memory_facts() {
  return {.failure = failure_of_shared_memory(),
          .variable = env::get("LOCKSTEP_SHARED_MEMORY"),
          .dev_shm_bytes = size_of_dev_shm()};
}

Findings judge(const SharedMemoryFacts& facts) {
  Findings findings;
  if (facts.variable && *facts.variable != "0" && *facts.variable != "1")
    findings.push_back(error("LOCKSTEP_SHARED_MEMORY is \"" + *facts.variable + "\", which ranks refuse.",
                             "Set it to 0 or 1, or unset it."));
  else if (facts.variable == "0")
    findings.push_back(note("LOCKSTEP_SHARED_MEMORY=0: ranks of this machine talk by sockets alone.",
                            "Unset it, for memory that they share, which is faster."));
  if (facts.failure.empty())
    findings.push_back(
        ok("Processes can share memory (memfd_create); 2 MiB are taken for each rank and group."));
  else
    findings.push_back(warning("Processes cannot share memory (" + facts.failure +
                                   "): ranks of this machine talk by sockets, which are slower.",
                               "Allow memfd_create and /proc to the container."));
  findings.push_back(
      ok("/dev/shm " +
         (facts.dev_shm_bytes ? "has " + memory_text(*facts.dev_shm_bytes) : std::string("is not there")) +
         "; lockstep does not use it."));
  return findings;
}

}  // namespace lockstep::doctor
