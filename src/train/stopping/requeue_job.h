// SLURM's word on starting a job again.
#pragma once

#include <string>

namespace lockstep::detail {

/// Asks SLURM to start this process's job again, by `scontrol requeue`. SLURM then ends what runs of it, and
/// soon. Returns nothing where it will, else why it will not, for people. Blocks for 30 s at most.
std::string requeue_job();

/// The same for a job that has to make room for another one: SLURM starts it again by itself only if it is
/// still there when its grace is over. False where it need not make room, and where SLURM refuses, which is
/// said on stderr.
bool requeue_preempted_job();

}  // namespace lockstep::detail
