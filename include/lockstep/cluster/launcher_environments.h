// The environments of ranks that a launcher or scheduler started and numbered by variables of its own: of
// SLURM's srun, of jsrun in LSF jobs, of mpirun, and of the runtime of TPU slices.
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/cluster/environment.h>

namespace lockstep {

/// What a job does about its time limit; names and defaults are Lightning's.
struct SlurmOptions {
  /// Whether a fit that gets requeue_signal saves where it is and has SLURM start the job again, which then
  /// goes on from there; see docs/clusters.md.
  bool auto_requeue = true;
  int requeue_signal = SIGUSR1;  ///< what `#SBATCH --signal` names; not one that ends a program anyway
};

/// Tasks of a job step, one rank each. Where SLURM allocated nodes but srun did not start this process (in
/// the shell of salloc, in an sbatch script itself, in `srun --pty bash`), there are no other ranks, and it
/// is not detected. Source: Lightning's `SLURMEnvironment`; variables: srun(1).
///
/// Rank 0 is met at MASTER_ADDR, else on the first of the step's nodes, else at 127.0.0.1; at MASTER_PORT,
/// else at 15000 and the last four digits of the job's number, moved for later steps of the job, else at
/// 12910.
class LOCKSTEP_API SlurmEnvironment final : public ExternalEnvironment {
 public:
  /// Reads SLURM_NTASKS, SLURM_PROCID, SLURM_LOCALID, SLURM_NODEID (obligatory), SLURM_NTASKS_PER_NODE
  /// (obligatory with more than one task), SLURM_NNODES, the list of nodes, SLURM_JOB_ID, MASTER_ADDR and
  /// MASTER_PORT.
  /// @throws ConfigError naming variable and value when one is missing, malformed, out of range or
  /// contradicts another, or requeue_signal is none that can be used
  explicit SlurmEnvironment(const SlurmOptions& options = {});

  /// True in a task that srun started, except of a shell. Warns once where a job has several tasks and this
  /// process is none of them.
  static bool detect();

  /// @throws ConfigError naming both sides unless num_devices tasks run on each of num_nodes nodes
  void validate_settings(int num_devices, int num_nodes) const override;

  /// SLURM_JOB_ID, which in an array is the number of this task's own job. None outside a job and in its
  /// interactive shell.
  static std::optional<std::int64_t> job_id();
  /// SLURM_JOB_NAME.
  static std::optional<std::string> job_name();
  /// What scontrol calls this job: its number, in an array ARRAY_TASK. None where job_id() is none.
  static std::optional<std::string> job_to_requeue();
  /// How often SLURM has started this job again: SLURM_RESTART_COUNT, else 0.
  static int restart_count();
  /// The number of this step in its job: SLURM_STEP_ID. None outside of steps.
  static std::optional<int> step();

  /// As asked for; never in jobs called bash or interactive, which somebody has in a terminal.
  bool auto_requeue() const;
  /// The number of the signal by which SLURM asks for a requeue.
  int requeue_signal() const { return options_.requeue_signal; }

 private:
  SlurmOptions options_;
  int num_nodes_;
};

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
