// Strict reading of the integers that launchers put into the environment.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep::cluster {

constexpr int kNoLimit = 2'147'483'647;
constexpr int kMaxPort = 65'535;
constexpr int kMaxRanks = 1'000'000;

/// Who sets the variables of an environment, and which of them makes it the environment of this process.
struct Source {
  constexpr Source(std::string_view its_name, std::string_view its_mark = {})
      : name(its_name), chosen_by(its_mark) {}

  std::string_view name;       ///< e.g. "torchrun"
  std::string_view chosen_by;  ///< e.g. "TORCHELASTIC_RUN_ID"; empty: none does
};

/// "; unset TORCHELASTIC_RUN_ID where torchrun has not started this process": what else to do where a
/// variable is missing. Empty where no variable has chosen the environment.
std::string or_unset(const Source& source);

/// An integer variable with the range it must lie in, and who is to blame when it does not.
struct IntVariable {
  std::string name;
  Source set_by;
  int min = 0;
  int max = kNoLimit;
  std::string_view max_name = {};  ///< what `max` stands for, such as "WORLD_SIZE - 1"
};

/// True when `name` is set, to whatever.
bool is_set(const std::string& name);

/// The variable's value; `fallback` when it is unset.
/// @throws ConfigError naming variable, value, range and source
int read_int(const IntVariable& variable, int fallback);

/// As read_int() for a variable that must be set.
LOCKSTEP_API int require_int(const IntVariable& variable);

/// LOCAL_WORLD_SIZE, where it is set. @throws ConfigError as above
std::optional<int> read_local_world_size(const Source& set_by);

/// MASTER_ADDR, or `fallback` when it is unset. @throws ConfigError when it is set but empty
std::string read_address(const Source& set_by, const std::string& fallback);

/// As read_address() where it must be set.
std::string require_address(const Source& set_by);

/// MASTER_PORT, or `fallback` when it is unset. @throws ConfigError as read_int()
int read_port(const Source& set_by, int fallback);

/// As read_port() where it must be set.
int require_port(const Source& set_by);

// Tells processes of mpirun from those that a scheduler started: inside a SLURM job mpirun's daemons are
// tasks of srun, and what they start inherits the daemon's variables.

/// True in a process that mpirun (Open MPI's, or Hydra of MPICH and Intel MPI) started.
bool started_by_mpirun();

}  // namespace lockstep::cluster
