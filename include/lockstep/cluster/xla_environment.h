// The environment of processes on the hosts of a TPU slice.
#pragma once

#include <lockstep/cluster/environment.h>

namespace lockstep {

/// Processes that were started on each host of a TPU slice, as torch_xla's runtime tells them apart. Never
/// detected: choose it by name. Source of names: Lightning's `XLAEnvironment`, which asks torch_xla.
///
/// Rank 0 is met at MASTER_ADDR, else on the first host; at MASTER_PORT, else at 12355, torch_xla's port.
class LOCKSTEP_API XlaEnvironment final : public ExternalEnvironment {
 public:
  /// Reads TPU_WORKER_HOSTNAMES (separated by commas; unset: this host alone), TPU_WORKER_ID (this host's
  /// place among them), PJRT_LOCAL_PROCESS_COUNT and PJRT_LOCAL_PROCESS_RANK (unset: one process),
  /// MASTER_ADDR and MASTER_PORT. @throws ConfigError naming variable and value when one is malformed or out
  /// of range
  XlaEnvironment();
};

}  // namespace lockstep
