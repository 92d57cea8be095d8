// Run directories of the second and later Trainers of a program, and folders that are given up again.
#pragma once

#include <filesystem>

#include <lockstep/train/trainer_options.h>

namespace lockstep::detail {

/// Counts the Trainers of this process that have opened `folder`, the run directory that ls::run() or a
/// launcher has given to the program. Returns 1 for the first Trainer, which uses that folder itself.
int count_trainer_of(const std::filesystem::path& folder);

/// Creates the folder of the `number`-th Trainer of a program whose first Trainer has the folder `first`.
/// This is the next version where `first` is a runs/NAME/version_N, else `first`/trainer_NUMBER. One rank
/// calls it.
/// @throws ConfigError as claim_run_directory()
std::filesystem::path claim_folder_of_trainer(int number, const std::filesystem::path& first,
                                              const TrainerOptions& options);

/// The folder of the program's first Trainer, where `run_dir` is its trainer_NUMBER; empty for other folders.
std::filesystem::path folder_of_first_trainer(const std::filesystem::path& run_dir);

/// Whether this process has claimed `folder` as a new version, and not given it up since.
bool is_new_run_directory(const std::filesystem::path& folder);

/// Gives up a new run directory, and removes it unless something is in it. Returns false, and does nothing,
/// for other folders.
bool give_back_run_directory(const std::filesystem::path& folder);

}  // namespace lockstep::detail
