#include "doctor/cluster.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/cluster/detect.h>

#include "base/format.h"
#include "doctor/network.h"
#include "launch/command.h"

namespace lockstep::doctor {
namespace {

constexpr const char* kStarters[] = {"srun", "sbatch", "mpirun", "mpiexec", "jsrun", "torchrun", "ssh"};

// Whose values are numbers, switches, names of interfaces or numbers of devices.
constexpr auto kShown = std::to_array<std::string_view>({"CUDA_VISIBLE_DEVICES",
                                                         "GLOO_SOCKET_IFNAME",
                                                         "GOMP_CPU_AFFINITY",
                                                         "GROUP_RANK",
                                                         "KMP_AFFINITY",
                                                         "LOCAL_RANK",
                                                         "LOCAL_WORLD_SIZE",
                                                         "LOCKSTEP_CMA",
                                                         "LOCKSTEP_CUDA_KERNELS",
                                                         "LOCKSTEP_DIAGNOSES",
                                                         "LOCKSTEP_SHARED_MEMORY",
                                                         "MASTER_ADDR",
                                                         "MASTER_PORT",
                                                         "MKL_NUM_THREADS",
                                                         "NCCL_DEBUG",
                                                         "NCCL_IB_DISABLE",
                                                         "NCCL_P2P_DISABLE",
                                                         "NCCL_SOCKET_IFNAME",
                                                         "NODE_RANK",
                                                         "OMP_NUM_THREADS",
                                                         "OMP_PROC_BIND",
                                                         "RANK",
                                                         "SLURM_JOB_NUM_NODES",
                                                         "SLURM_NTASKS",
                                                         "SLURM_NTASKS_PER_NODE",
                                                         "SLURM_PROCID",
                                                         "WORLD_SIZE"});
constexpr auto kHeededBeginnings = std::to_array<std::string_view>(
    {"ATEN_",           "CUBLAS_",    "CUDA_",   "FI_",  "GLOO_", "GOMP_", "KMP_",       "LOCKSTEP_",
     "LD_LIBRARY_PATH", "LD_PRELOAD", "MALLOC_", "MKL_", "NCCL_", "OMP_",  "OMPI_COMM_", "PMI_",
     "PYTORCH_",        "SLURM_",     "TORCH",   "UCX_"});

std::map<std::string, std::string> starters() {
  std::map<std::string, std::string> found;
  for (const auto* const name : kStarters) {
    try {
      found[name] = launch::find_program(name).string();
    } catch (const ConfigError&) {
    }
  }
  return found;
}

bool is_heeded(std::string_view name) {
  return std::ranges::any_of(kHeededBeginnings, [&](auto beginning) { return name.starts_with(beginning); });
}

Findings judge_environment(const ClusterFacts& facts) {
  if (!facts.failure.empty())
    return {error("The variables of a launcher are malformed: " + facts.failure,
                  "Unset them, or start ranks by that launcher.")};
  if (!facts.starts_ranks)
    return {ok("no launcher has started this process: programs start their ranks themselves")};
  return {note(facts.environment + " has started this process as one of " +
               counted(facts.world_size, "rank") +
               "; programs started here are that rank, and start none themselves. Rank 0 is at " +
               facts.main_address + ".")};
}

}  // namespace

ClusterFacts cluster_facts() {
  ClusterFacts facts{.programs = starters()};
  try {
    const auto environment = detect_environment();
    facts.environment = environment->name();
    facts.starts_ranks = environment->creates_processes_externally();
    if (!facts.starts_ranks) return facts;
    facts.world_size = environment->world_size();
    facts.main_address = environment->main_address();
  } catch (const ConfigError& failure) {
    facts.failure = failure.what();
  }
  return facts;
}

Findings judge(const ClusterFacts& facts) {
  auto findings = judge_environment(facts);
  std::vector<std::string> names;
  for (const auto& [name, path] : facts.programs) names.push_back(name + " (" + path + ")");
  findings.push_back(
      ok(names.empty() ? "no srun, mpirun, torchrun or ssh in PATH" : "in PATH: " + joined(names)));
  return findings;
}

VariableFacts variable_facts() {
  VariableFacts facts;
  for (const auto& [name, value] : env::with_prefix("")) {
    if (std::ranges::find(kShown, name) != kShown.end())
      facts.shown[name] = value;
    else if (is_heeded(name))
      facts.others.push_back(name);
  }
  return facts;
}

Findings judge(const VariableFacts& facts) {
  Findings findings;
  std::vector<std::string> words;
  for (const auto& [name, value] : facts.shown) words.push_back(name + "=" + value);
  if (!words.empty()) findings.push_back(ok(joined(words)));
  if (!facts.others.empty()) findings.push_back(ok("also set, values not shown: " + joined(facts.others)));
  if (findings.empty()) findings.push_back(ok("none is set that ranks heed"));
  return findings;
}

}  // namespace lockstep::doctor
