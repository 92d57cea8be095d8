// `lockstep run`: starts any program as the ranks of this node, as torchrun does, and stays until all have
// ended.
#pragma once

#include <lockstep/base/export.h>
#include <lockstep/launch/launch_options.h>

namespace lockstep {

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

}  // namespace lockstep
