// The environment of ranks started by mpirun.
#pragma once

#include <lockstep/cluster/environment.h>

namespace lockstep {

/// Ranks started by Open MPI's mpirun (OMPI_COMM_WORLD_*), by Hydra of MPICH and Intel MPI (PMI_* and
/// MPI_LOCALRANKID), or by another process manager that sets PMI_RANK and PMI_SIZE. MPI itself is not
/// needed, and nothing is sent: where ranks are on several nodes, MASTER_ADDR must name rank 0's.
/// Nodes are counted as mpirun fills them by default, one after the other. Source of names: Lightning's
/// `MPIEnvironment`, which asks mpi4py.
///
/// Rank 0 is met at MASTER_ADDR, else, with all ranks on one node, at 127.0.0.1; at MASTER_PORT, else at a
/// port made from the job's name (PMIX_NAMESPACE), else at 12910.
class LOCKSTEP_API MpiEnvironment final : public ExternalEnvironment {
 public:
  /// @throws ConfigError naming variable and value when one is missing, malformed, out of range, or when
  /// MASTER_ADDR is needed
  MpiEnvironment();

  /// True when mpirun started this process as one of several.
  static bool detect();
};

}  // namespace lockstep
