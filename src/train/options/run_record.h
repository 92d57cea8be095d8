// RUN_DIR/run.json: what a run was started as, from which `lockstep rerun` starts it again.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/base/export.h>

#include "train/options/run_setup.h"

namespace lockstep::detail {

/// Writes run.json into the run directory of `setup`: the program with its checksum, its command and folder,
/// the commit of the sources around it, versions, the variables that it heeds, the ranks, and the files that
/// its configuration names. Called on rank 0.
/// @param number  of the Trainer in its program, from 1
/// @param seeds  own_seed() of each rank
void write_run_record(const RunSetup& setup, int number, const std::vector<std::string>& seeds);

/// What the random generator of this rank was seeded with, which a program that sets no seed draws from the
/// system.
std::string own_seed();

/// In a repetition of a run, the first time in this process: seeds the random generator as that of `rank`
/// was.
LOCKSTEP_API void repeat_seed(int rank);

/// Adds to run.json the checkpoint from which the run goes on. Called on rank 0.
void record_resumed_from(const RunSetup& setup, const std::filesystem::path& checkpoint);

}  // namespace lockstep::detail
