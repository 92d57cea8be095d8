// Strict reading of what launchers put into the environment: integers, addresses and lists of hosts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::cluster {

constexpr int kNoLimit = 2'147'483'647;
constexpr int kMaxPort = 65'535;
constexpr int kMaxRanks = 1'000'000;
constexpr int kDefaultPort = 12'910;  ///< of rank 0, where the launcher names none

/// The program that sets the variables of an environment, and the variable by which the environment is
/// detected.
struct Source {
  constexpr Source(std::string_view its_name, std::string_view its_mark = {})
      : name(its_name), chosen_by(its_mark) {}

  std::string_view name;       ///< e.g. "torchrun"
  std::string_view chosen_by;  ///< e.g. "TORCHELASTIC_RUN_ID"; empty where it is not detected by a variable
};

/// "; unset TORCHELASTIC_RUN_ID where torchrun has not started this process": the other remedy where a
/// variable is missing. Empty where the environment was not detected by a variable.
std::string or_unset(const Source& source);

/// An integer variable with its range, and the program that sets it, for errors.
struct IntVariable {
  std::string name;
  Source set_by;
  int min = 0;
  std::int64_t max = kNoLimit;
  std::string_view max_name = {};  ///< what `max` stands for, such as "WORLD_SIZE - 1"
};

/// Whether `name` is set, to any value.
bool is_set(const std::string& name);

/// The variable's value; `fallback` when it is unset.
/// @throws ConfigError naming variable, value, range and source
int read_int(const IntVariable& variable, int fallback);

/// As read_int() for a variable that must be set.
LOCKSTEP_API int require_int(const IntVariable& variable);

/// As require_int() for numbers that may be larger than an int.
std::int64_t require_int64(const IntVariable& variable);

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

// Distinguishes processes of mpirun from those that a scheduler started: inside a SLURM job the daemons of
// mpirun are tasks of srun, and the processes that they start inherit their variables.

/// True in a process that mpirun (Open MPI's, MVAPICH2's, or Hydra of MPICH and Intel MPI) started.
bool started_by_mpirun();

/// The hosts of `text` in order: names separated by commas or blanks, of which each may hold ranges in
/// brackets, such as `rack[1-2]n[08-10,15]`. Leading zeros are kept. `name` is the variable that has the
/// text.
/// @throws ConfigError naming the variable and the text when there is no host, a bracket is open, a range is
/// none, or it stands for more than kMaxRanks hosts
LOCKSTEP_API std::vector<std::string> expand_node_list(std::string_view name, std::string_view text);

}  // namespace lockstep::cluster
