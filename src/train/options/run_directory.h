// The run directory of a program that has several Trainers.
#pragma once

#include <filesystem>

#include <lockstep/train/trainer_options.h>

namespace lockstep::detail {

/// Counts the Trainers of this process that have opened `folder`, the run directory that ls::run() or a
/// launcher has given to the program: 1 for the first, whose it is.
int count_trainer_of(const std::filesystem::path& folder);

/// Creates the folder of the `number`-th Trainer of a program whose first one has `first`: where that is a
/// runs/NAME/version_N the next version, else `first`/trainer_NUMBER. One rank calls it.
/// @throws ConfigError as claim_run_directory()
std::filesystem::path claim_folder_of_trainer(int number, const std::filesystem::path& first,
                                              const TrainerOptions& options);

/// Where earlier Trainers of the program of `run_dir` may have left checkpoints, if it is such a
/// trainer_NUMBER.
std::filesystem::path folder_of_first_trainer(const std::filesystem::path& run_dir);

}  // namespace lockstep::detail
