// Tells processes of mpirun from those that a scheduler started: inside a SLURM job mpirun's daemons are
// tasks of srun, and what they start inherits the daemon's variables.
#pragma once

namespace lockstep::cluster {

/// True in a process that mpirun (Open MPI's, or Hydra of MPICH and Intel MPI) started.
bool started_by_mpirun();

}  // namespace lockstep::cluster
