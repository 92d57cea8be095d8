// SLURM's word on starting a job again.
#pragma once

#include <string>

namespace lockstep::detail {

/// Asks SLURM to start this process's job again, by `scontrol requeue`. SLURM then ends what runs of it, and
/// soon. Returns nothing where it will, else why it will not, for people. Blocks for 30 s at most.
std::string requeue_job();

}  // namespace lockstep::detail
