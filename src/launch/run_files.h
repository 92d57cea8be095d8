// ranks.json and failure.json: files in the folder of a run about its processes, for scripts.
#pragma once

#include <filesystem>
#include <span>

#include <lockstep/launch/launch_options.h>

#include "launch/rank_process.h"
#include "launch/status_table.h"

namespace lockstep::launch {

/// The files of one node. Node 0 writes ranks.json and failure.json, node N ranks.node-N.json and so on.
/// Files appear whole or not at all. Where `run_dir` is empty nothing is done. A file that cannot be
/// written is one warning on stderr and never ends a run.
class RunFiles {
 public:
  /// Creates the folder and removes the failure of an earlier run from it.
  /// @throws IoError when it cannot be created; ConfigError on node 0 while another run uses it
  explicit RunFiles(const LaunchOptions& options);

  /// {"0": pid, ...}
  void write_ranks(std::span<const RankProcess> ranks) const;

  /// Writes which rank failed, how and where, the `cause` in one line, and how the other ranks ended.
  void write_failure(const RankProcess& root_cause, const std::string& cause,
                     std::span<const RankProcess> ranks, const StatusTable& statuses) const;

 private:
  std::filesystem::path file(const std::string& stem) const;

  std::filesystem::path folder_;
  int node_;
};

/// failure.json of this process, which ran alone and is about to end with `exit_code`.
void write_lone_failure(const std::filesystem::path& run_dir, int exit_code);

}  // namespace lockstep::launch
