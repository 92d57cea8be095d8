// Run directories of the second and later Trainers of a program, and what earlier runs have left in a folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

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

/// Whether an earlier run has left its record in `folder`: config.yaml, run.json, summary.json, failure.json,
/// metrics.csv or metrics.jsonl.
bool holds_record(const std::filesystem::path& folder);

/// Renames the files of that record to config.1.yaml, run.1.json, ..., all with one number, the first that
/// none of them has. Does nothing where there is no record. @throws std::filesystem::filesystem_error
void put_record_aside(const std::filesystem::path& folder);

/// Gives up a folder that this process has claimed as a new version, and removes it unless something is in
/// it. Returns false, and does nothing, for other folders.
bool give_back_run_directory(const std::filesystem::path& folder);

/// What a run directory holds before a run that may be refused while it is set up. Such a run leaves no
/// folder of its own, and the record of an earlier run as it was.
class FolderBeforeRun {
 public:
  /// Reads the files about processes in `folder`; empty: there is no folder.
  explicit FolderBeforeRun(std::filesystem::path folder);

  /// Removes the folder if this process has claimed it as a new version and nothing but logs and files about
  /// processes is in it; puts these files back beside the record of an earlier run. Does nothing where a run
  /// has left its own record since.
  void restore() const;

 private:
  std::filesystem::path folder_;
  std::map<std::string, std::uint64_t> record_;       // the files of a record, by their inodes
  std::map<std::string, std::string> process_files_;  // name and content of those that are there
};

}  // namespace lockstep::detail
