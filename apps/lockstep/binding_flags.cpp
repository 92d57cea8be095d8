#include "binding_flags.h"

#include <filesystem>

#include <lockstep/base/env.h>

#include "refusal.h"

namespace {

using lockstep::BindingKind;

// Which node an accelerator is at is not known here.
void refuse_beside_accelerators(const std::string& flag) {
  if (std::filesystem::exists("/proc/driver/nvidia"))
    refuse_run(flag, "a host without GPUs, as their nodes are not known yet", "one with GPUs",
               "--bind-cores divides the cores equally");
}

}  // namespace

void add_binding_flags(CLI::App& verb, BindingFlags& flags) {
  verb.add_flag("--bind-cores,--bind_cores,--bind-cores-to-rank,--bind_cores_to_rank", flags.cores,
                "Give each rank cores of its own, in equal parts");
  verb.add_option("--bind-core-list,--bind_core_list", flags.core_list,
                  "The same with these processors: 0-3,8");
  verb.add_option("--numa-binding,--numa_binding", flags.numa,
                  "Give each rank a node, a socket, an exclusive part of a node, or a core-complex");
}

lockstep::BindingOptions binding_of(const BindingFlags& flags) {
  if (flags.core_list && flags.core_list->empty())
    refuse_run("--bind-core-list", "numbers of processors, such as 0-3,8", "\"\"");
  const bool binds_cores = flags.cores || flags.core_list;
  if (!binds_cores && flags.numa.empty()) return {};
  for (const char* variable : {"KMP_AFFINITY", "GOMP_CPU_AFFINITY"})
    if (const auto value = lockstep::env::get(variable))
      refuse_run(std::string("environment variable ") + variable, "unset, as ranks are bound by flags",
                 *value);
  if (flags.numa.empty())
    return {.kind = BindingKind::kCores,
            .processors = !flags.core_list ? std::vector<int>{}
                                           : value_of("--bind-core-list", *flags.core_list,
                                                      lockstep::parse_processors(*flags.core_list))};
  if (binds_cores) refuse_run("--numa-binding", "no --bind-cores beside it", "both");
  refuse_beside_accelerators("--numa-binding");
  return {.kind =
              value_of("--numa-binding", flags.numa, lockstep::OptionType<BindingKind>::parse(flags.numa))};
}
