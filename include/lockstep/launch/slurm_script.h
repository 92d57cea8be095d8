// The file that sbatch takes, for a program whose ranks srun starts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep {

/// What a job asks SLURM for. Names are sbatch's; what is empty or none is left to SLURM.
struct SlurmScriptOptions {
  std::string job_name = {};                ///< empty: the program's file name
  int nodes = 1;                            ///< nodes of the job
  std::optional<int> ntasks_per_node = {};  ///< ranks on each node; none: gpus_per_node, else 1
  std::optional<int> gpus_per_node = {};    ///< of each node; none: not asked for
  std::optional<int> cpus_per_task = {};    ///< processors of each rank; none: not asked for
  std::string mem = {};                     ///< per node: 16G
  std::string time = {};           ///< MINUTES, [HOURS:]MINUTES:SECONDS or DAYS-HOURS[:MINUTES[:SECONDS]]
  std::string signal = "USR1@90";  ///< `NAME@SECONDS` before the end of `time`; "none": no signal
  bool requeue = true;             ///< whether SLURM may start the job again
  std::string partition = {};      ///< of the cluster; empty: its default
  std::string account = {};        ///< that is charged; empty: the user's
  std::string qos = {};            ///< quality of service; empty: the default
  std::string constraint = {};     ///< of nodes; empty: none
  std::string array = {};          ///< numbers of tasks: 0-3, 1,5,9 or 0-15:4%2
  std::string logs = {};           ///< folder for what the job writes; empty: the one that it is submitted in
  std::vector<std::string> setup = {};    ///< lines of shell that come before the program: module load gcc
  std::vector<std::string> command = {};  ///< the program and its arguments; never empty
};

/// The text of a file for sbatch. Words of the command reach the program as they are, but that bash puts in
/// the values of variables that SLURM sets: $SLURM_ARRAY_TASK_ID.
/// @throws ConfigError naming the option, its value and what is accepted
LOCKSTEP_API std::string slurm_script(const SlurmScriptOptions& options);

}  // namespace lockstep
