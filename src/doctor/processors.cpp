#include <unistd.h>

#include <cmath>
#include <fstream>
#include <set>
#include <string>

#include <lockstep/base/env.h>

#include "base/format.h"
#include "doctor/machine.h"

namespace lockstep::doctor {
namespace {

std::string processor_model() {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':');
    if (line.starts_with("model name") && colon != std::string::npos)
      return std::string(detail::trimmed(line.substr(colon + 1)));
  }
  return {};
}

long distinct(const std::vector<CpuCore>& cores, int CpuCore::*place) {
  std::set<int> places;
  for (const auto& core : cores) places.insert(core.*place);
  return static_cast<long>(places.size());
}

std::string layout_text(const ProcessorFacts& facts) {
  return counted(static_cast<long>(facts.cores.size()), "core") + " in " +
         counted(distinct(facts.cores, &CpuCore::socket), "socket") + " and " +
         counted(distinct(facts.cores, &CpuCore::node), "NUMA node");
}

constexpr auto kSetThreads =
    "Set OMP_NUM_THREADS to the processors of a rank: lockstep counts those of the affinity (taskset, a "
    "scheduler), and does not see a quota of time.";

}  // namespace

ProcessorFacts processor_facts() {
  const auto usable = usable_processor_numbers();
  return {.model = processor_model(),
          .online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)),
          .usable = static_cast<int>(usable.size()),
          .cores = cores_of(usable),
          .quota = detail::cgroup_limits().processors,
          .threads = env::get("OMP_NUM_THREADS")};
}

Findings judge(const ProcessorFacts& facts) {
  const auto model = facts.model.empty() ? "" : facts.model + ": ";
  auto text = model + counted(facts.usable, "processor") + " usable of " + std::to_string(facts.online) +
              ", " + layout_text(facts);
  Findings findings{with_value(ok(std::move(text)), facts.usable, "processors")};
  if (facts.quota && std::ceil(*facts.quota) < facts.usable && !facts.threads)
    findings.push_back(
        with_value(warning("The control group allows the time of " + two_digits(*facts.quota) +
                               " processors, fewer than "
                               "are usable: ranks would start too many threads and wait for each other.",
                           kSetThreads),
                   *facts.quota, "processors"));
  if (facts.threads)
    findings.push_back(note("OMP_NUM_THREADS is " + *facts.threads +
                            ": each rank computes with so many threads; unset, lockstep divides the usable "
                            "processors among the ranks."));
  if (facts.usable == 1)
    findings.push_back(
        note("One processor for all ranks: they work, but by turns; more ranks do not train faster."));
  if (distinct(facts.cores, &CpuCore::node) > 1)
    findings.push_back(note("Memory belongs to several NUMA nodes; a rank is faster on the cores of one.",
                            "lockstep run --numa-binding node, or exclusive."));
  return findings;
}

}  // namespace lockstep::doctor
