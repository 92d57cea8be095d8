#include <sys/resource.h>

#include <algorithm>
#include <string>

#include "base/format.h"
#include "doctor/machine.h"
#include "rendezvous/descriptors.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kManyRanks = 64;
constexpr std::int64_t kFewTasks = 512;

constexpr auto kRaiseFiles =
    "Raise the hard limit: ulimit -Hn in root's shell, LimitNOFILE= of a service, --ulimit nofile= of a "
    "container, nofile in /etc/security/limits.conf.";

std::optional<std::int64_t> limit_or_none(rlim_t limit) {
  return limit == RLIM_INFINITY ? std::nullopt : std::optional(static_cast<std::int64_t>(limit));
}

std::string limit_or_unlimited(std::optional<std::int64_t> limit) {
  return limit ? std::to_string(*limit) : "unlimited";
}

bool has_files_in(const fs::path& folder) {
  std::error_code none;
  return fs::directory_iterator(folder, none) != fs::directory_iterator();
}

Finding judge_open_files(const LimitFacts& facts) {
  const auto text = "open files: " + limit_or_unlimited(facts.open_files) + ", which lockstep raises up to " +
                    limit_or_unlimited(facts.most_open_files) + " where more are needed";
  if (!facts.most_open_files) return ok(text);
  const auto of_one = rendezvous::descriptors_of_group(0, 1), of_two = rendezvous::descriptors_of_group(0, 2);
  const auto most_ranks = (*facts.most_open_files - of_one) / (of_two - of_one) + 1;
  const auto with_ranks = [&](Finding finding) {
    return with_value(std::move(finding), static_cast<double>(*facts.most_open_files), "files");
  };
  if (*facts.most_open_files < of_two)
    return with_ranks(error(text + ": too few for two ranks.", kRaiseFiles));
  const auto enough = text + "; that is enough for groups of " + counted(most_ranks, "rank") +
                      ", without the files of the program itself";
  if (most_ranks < std::max<std::int64_t>(kManyRanks, facts.processors))
    return with_ranks(warning(enough + ".", kRaiseFiles));
  return with_ranks(ok(enough));
}

Finding judge_locked_memory(const LimitFacts& facts) {
  if (!facts.locked_bytes) return ok("locked memory: unlimited");
  const auto text = "locked memory: " + memory_text(*facts.locked_bytes);
  if (!facts.has_infiniband) return ok(text + "; lockstep locks none");
  return warning(
      text + ", while there are InfiniBand devices, for which NCCL locks memory.",
      "ulimit -l unlimited, LimitMEMLOCK=infinity of a service, --ulimit memlock=-1 of a container.");
}

Finding judge_tasks(const LimitFacts& facts) {
  auto least = facts.processes;
  if (facts.tasks && (!least || *facts.tasks < *least)) least = facts.tasks;
  const auto text = "processes and threads: " + limit_or_unlimited(least);
  if (!least || *least >= kFewTasks) return ok(text);
  return warning(text + "; each rank has some threads of its own and those that compute.",
                 "ulimit -u, TasksMax= of a service, --pids-limit of a container.");
}

}  // namespace

LimitFacts limit_facts() {
  rlimit files{}, locked{}, processes{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  ::getrlimit(RLIMIT_MEMLOCK, &locked);
  ::getrlimit(RLIMIT_NPROC, &processes);
  return {.processors = usable_processors(),
          .open_files = limit_or_none(files.rlim_cur),
          .most_open_files = limit_or_none(files.rlim_max),
          .locked_bytes = limit_or_none(locked.rlim_cur),
          .has_infiniband = has_files_in("/sys/class/infiniband"),
          .processes = limit_or_none(processes.rlim_cur),
          .tasks = detail::cgroup_limits().tasks};
}

Findings judge(const LimitFacts& facts) {
  return {judge_open_files(facts), judge_locked_memory(facts), judge_tasks(facts)};
}

}  // namespace lockstep::doctor
