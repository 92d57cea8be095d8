// Who starts ranks here: schedulers and launchers, by their programs and variables.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <lockstep/base/export.h>

#include "doctor/findings.h"

namespace lockstep::doctor {

struct ClusterFacts {
  std::string environment = {};   ///< the name of the cluster environment that this process is in
  bool starts_ranks = false;      ///< it has started this process as a rank
  int world_size = 1;             ///< where it has
  std::string main_address = {};  ///< where it has: the host of rank 0
  std::string failure = {};       ///< what is wrong with its variables
  std::map<std::string, std::string> programs = {};  ///< srun and others by name, those that PATH leads to
};
ClusterFacts cluster_facts();
LOCKSTEP_API Findings judge(const ClusterFacts& facts);

/// Variables that lockstep, LibTorch or a launcher heeds, and that are set.
struct VariableFacts {
  std::map<std::string, std::string> shown = {};  ///< with values, of those whose values are no secrets
  std::vector<std::string> others = {};           ///< names alone
};
LOCKSTEP_API VariableFacts variable_facts();
LOCKSTEP_API Findings judge(const VariableFacts& facts);

}  // namespace lockstep::doctor
