// RUN_DIR/run.json: what a run was started as, from which `lockstep rerun` starts it again.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/base/export.h>

#include "train/options/run_setup.h"

namespace lockstep::detail {

/// Puts the record of an earlier run aside, and writes config.yaml and run.json into the run directory: the
/// program with its checksum, its command and folder, the commit of the sources around it, versions, the
/// variables that it heeds, the ranks, and the files that its configuration names. Once for each Trainer;
/// does nothing on other ranks than 0, and where there is no run directory yet.
void write_record(RunSetup& setup);

/// Does the same where a run has passed its checks: until then it leaves an earlier run's record as it is.
void begin_recorded_run(RunSetup& setup);

/// What the random generator of this rank was seeded with, which a program that sets no seed draws from the
/// system.
std::string own_seed();

/// In a repetition of a run, the first time in this process: seeds the random generator as that of `rank`
/// was.
LOCKSTEP_API void repeat_seed(int rank);

/// Has run.json tell the checkpoint from which the Trainer's first run goes on, or which it evaluates. Does
/// nothing on other ranks than 0.
void record_resumed_from(RunSetup& setup, const std::filesystem::path& checkpoint);

}  // namespace lockstep::detail
