// The environment of ranks started by LSF's jsrun.
#pragma once

#include <lockstep/cluster/environment.h>

namespace lockstep {

/// Ranks that IBM's Job Step Manager (jsrun) started inside an LSF job. Source: Lightning's
/// `LSFEnvironment`.
///
/// Rank 0 is met at MASTER_ADDR, else on the first compute host of the rank file; at MASTER_PORT, else at
/// 10000 and the last three digits of the job's number.
class LOCKSTEP_API LsfEnvironment final : public ExternalEnvironment {
 public:
  /// Reads LSB_JOBID, JSM_NAMESPACE_SIZE, JSM_NAMESPACE_RANK, JSM_NAMESPACE_LOCAL_RANK, and the file that
  /// LSB_DJOB_RANKFILE names: a line for each rank with its host, after one for the launch node.
  /// @throws ConfigError naming variable and value when one is missing, malformed or out of range, or when
  /// the file cannot be read or names no compute host
  LsfEnvironment();

  /// True when all of LSB_JOBID, LSB_DJOB_RANKFILE, JSM_NAMESPACE_LOCAL_RANK and JSM_NAMESPACE_SIZE are set.
  static bool detect();
};

}  // namespace lockstep
