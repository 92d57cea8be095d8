// `lockstep run`: starts any program as the ranks of this node, as torchrun does, and stays until all have
// ended.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/launch/binding.h>
#include <lockstep/launch/launch.h>
#include <lockstep/launch/output_options.h>
#include <lockstep/launch/rendezvous_options.h>

namespace lockstep {

/// What to run, and how often anew.
struct ProgramOptions {
  std::vector<std::string> command = {};  ///< program and arguments; `*.py` is run by python3 -u
  LaunchOptions launch = {};              ///< main_port 0: a free one, for each attempt
  OutputOptions output = {};
  BindingOptions binding = {};  ///< then OMP_NUM_THREADS is a rank's cores, unless it is set
  std::string run_id = "none";  ///< what the ranks know the job by
  bool no_python = false;       ///< `*.py` is executed itself, too
  int max_restarts = 0;         ///< times that all ranks are started anew after one has failed, >= 0
  int first_rank = -1;          ///< of this node; -1: all nodes have as many ranks
  int world_size = 0;           ///< of the job; 0: all nodes have as many ranks
  bool tied_to_stdin = false;   ///< ranks get /dev/null; when stdin ends, all end at once
  /// Where the launchers of several nodes meet. Then num_nodes and node_rank are what the rendezvous gives,
  /// and rank 0 gets a free port. Empty: this node is alone.
  std::optional<RendezvousOptions> rendezvous = {};
};

/// Each rank is executed in a session of its own, with the variables of launch.h and of torchrun's workers
/// (TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT, ...), so that Python programs find what
/// init_process_group("env://") asks for. LOCKSTEP_ROUND counts the starts of the job's ranks, from
/// 0, whatever they were for; LOCKSTEP_LAUNCHER_START_NS is when this launcher began, in nanoseconds since
/// 1970. Prints the first failure, with the last lines of that rank on stderr; with several nodes on each of
/// them, the last lines where it was. Blocks.
/// @returns as launch_forked(), of the last attempt
/// @throws ConfigError when options are out of range, or there is no such program
/// @throws Error when the ranks cannot be started; Timeout when there is no rendezvous in time
LOCKSTEP_API int run_program(const ProgramOptions& options);

/// The processors that this process may use, by its affinity.
LOCKSTEP_API int usable_processors();

}  // namespace lockstep
