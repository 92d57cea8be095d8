// The record that an earlier run has left in a run directory: put aside by the next run, kept by a refused
// one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace lockstep::detail {

/// Whether an earlier run has left its record in `folder`: config.yaml, run.json, summary.json, failure.json,
/// metrics.csv or metrics.jsonl.
bool holds_record(const std::filesystem::path& folder);

/// Renames the files of that record to config.1.yaml, run.1.json, ..., all with one number, the first that
/// none of them has. Does nothing where there is no record. @throws std::filesystem::filesystem_error
void put_record_aside(const std::filesystem::path& folder);

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
