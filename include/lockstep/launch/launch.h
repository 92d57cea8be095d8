// Starts the ranks of this node and stays until all have ended.
//
// The caller becomes a supervisor: it names the first failure, stops the other ranks within a second
// and returns the exit code of the run. Ranks die with it, even when it is killed by SIGKILL.
//
// What a rank finds in its environment, as torchrun's workers do: RANK, LOCAL_RANK, WORLD_SIZE,
// LOCAL_WORLD_SIZE, NODE_RANK, GROUP_RANK, GROUP_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and, unless set,
// OMP_NUM_THREADS (the processors it may use, divided by the ranks). And of our own: LOCKSTEP_LAUNCHED
// ("fork" or "reexec"), LOCKSTEP_LISTEN_FD (rank 0: a socket that listens on MASTER_PORT already) and
// LOCKSTEP_STATUS_FD (see join_launcher()).
#pragma once

#include <filesystem>
#include <functional>

#include <lockstep/base/export.h>
#include <lockstep/launch/launch_options.h>

namespace lockstep {

/// Options for `nprocs` ranks on this node of `num_nodes`, with what the environment says of the rest as
/// Lightning does: MASTER_ADDR, MASTER_PORT, and NODE_RANK or GROUP_RANK.
/// @throws ConfigError naming the variable that is malformed
LOCKSTEP_API LaunchOptions launch_options(int nprocs, int num_nodes, std::filesystem::path run_dir);

/// True while this process has one thread, which is when launch_forked() can be used.
LOCKSTEP_API bool can_fork();

/// Starts the ranks by fork and supervises them. Blocks until all have ended.
///
/// Each rank calls `rank_main` in a copy of this process and exits with what it returns, or with 1 or 2
/// as run_rank() says when it throws; it never comes back from here, and static destructors do not run.
/// @returns the run's exit code: 0; the code of the rank that failed first, or 128 + the signal that
///   killed it; 130 and 143 after SIGINT and SIGTERM
/// @throws ConfigError when options are out of range, this process is a rank already or has more threads
/// @throws Error when the port is taken or the ranks cannot be started; none is left then
LOCKSTEP_API int launch_forked(const LaunchOptions& options, const std::function<int()>& rank_main);

/// The same over new processes of this program with the same arguments, for when threads exist already.
/// A rank runs main() from its start; there started_by_launcher() is true and join_launcher() is due.
/// @param argv as main() got it, `argc` strings and a null pointer
LOCKSTEP_API int launch_reexec(const LaunchOptions& options, int argc, char** argv);

/// `lockstep run`: starts any program as the ranks of this node, as torchrun does, and stays until all have
/// ended. Each rank is executed in a session of its own, with the variables described above and of torchrun's
/// workers (TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT, ...), so that Python programs find what
/// init_process_group("env://") asks for. LOCKSTEP_ROUND counts the starts of the job's ranks, from
/// 0, whatever they were for; LOCKSTEP_LAUNCHER_START_NS is when this launcher began, in nanoseconds since
/// 1970. Prints the first failure, with the last lines of that rank on stderr; with several nodes on each of
/// them, the last lines where it was. Blocks.
/// @returns as launch_forked(), of the last attempt
/// @throws ConfigError when options are out of range, or there is no such program
/// @throws Error when the ranks cannot be started; Timeout when there is no rendezvous in time
LOCKSTEP_API int run_program(const ProgramOptions& options);

}  // namespace lockstep
