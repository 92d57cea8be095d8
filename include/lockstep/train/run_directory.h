// runs/NAME/version_N, or the exact folder the user gave.
#pragma once

#include <filesystem>
#include <string>

#include <lockstep/base/export.h>

namespace lockstep {

/// Creates `wanted` or, when it is empty, the first free `runs/NAME/version_N` below `root`, which is the
/// working directory when empty, with logs/ and checkpoints/ in it. A step of a SLURM job gets version_JOB or
/// version_JOB.STEP, also when SLURM starts the job again. Programs that start at the same time get folders
/// of their own. What an earlier run has left in the folder stays as it is: a run that begins puts its record
/// aside. Not Collective: one rank calls it.
/// @throws ConfigError naming the folder when it cannot be created or written
LOCKSTEP_API std::filesystem::path claim_run_directory(const std::filesystem::path& wanted,
                                                       const std::string& name,
                                                       const std::filesystem::path& root = {});

}  // namespace lockstep
