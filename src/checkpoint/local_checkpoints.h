// Checkpoints in the memory of the nodes that train: a folder on each, such as one in /dev/shm.
//
// A local checkpoint is a checkpoint like any other (docs/checkpoint-format.md), but no node has all of it: a
// node has the manifest, the files that its own ranks wrote, and copies of those of the
// replication_factor - 1 nodes before it. As long as one of so many neighbours is left, nothing is lost.
// The files are the snapshot: writing them is all that training waits for; copies travel in the background.
// A local checkpoint gets its name on a node when all nodes have all that is theirs, and the one before is
// removed when all have given the new one its name.
//
// The scheme is that of GEMINI (Wang et al., SOSP 2023) and of LocalCheckpointManager with
// CliqueReplicationStrategy in NVIDIA's resiliency extension.
#pragma once

#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>
#include <lockstep/checkpoint/checkpoint.h>

#include "checkpoint/folder_nodes.h"
#include "checkpoint/local_inventory.h"

namespace lockstep::detail {

class Saving;

class LOCKSTEP_API LocalCheckpoints {
 public:
  /// Those of the run `run_dir` in `root`, or in a folder of this user in /dev/shm where that is empty. Ranks
  /// may name different roots: those that have one in common are a node. Each file is kept on
  /// `replication_factor` nodes, or on all where there are fewer. Removes what was being written when a rank
  /// was killed. Collective, blocking.
  /// @throws on every rank: where a rank's folder cannot be used, its own ConfigError or IoError, on the
  ///   others CheckpointError
  LocalCheckpoints(const std::filesystem::path& root, const std::filesystem::path& run_dir,
                   int replication_factor, const Communicator& communicator);
  /// Waits; a failure that nobody asked for is logged.
  ~LocalCheckpoints();
  LocalCheckpoints(const LocalCheckpoints&) = delete;
  LocalCheckpoints& operator=(const LocalCheckpoints&) = delete;

  /// Returns when this rank's files are written; the state may then change. Waits for the one before; should
  /// that have failed, rank 0 warns. Collective. @throws CommError
  void save(const CheckpointState& state, const CheckpointInfo& info);
  /// Blocks until the last one is complete on all nodes. @throws what it failed with, once
  void wait();

  /// What nodes have of the runs `run_dirs`, which rank 0 names for all, the latest first. Damaged manifests
  /// are said in a warning. Collective, blocking.
  std::vector<LocalCandidate> find(const std::vector<std::filesystem::path>& run_dirs) const;

  /// Opens one on all ranks; where a node lacks files it gets them from another one first. With Verify::kAll
  /// the ranks of a node share the check of all bytes. Collective, blocking.
  /// @throws on every rank: CheckpointError naming the files that no node has any more, another number of
  ///   ranks, or what is damaged, on which rank; IoError where a node has no room
  Checkpoint open(const LocalCandidate& candidate, Verify verify);

  /// A fit begins: only the one that was opened last is of use to it, until the next one is complete. Those
  /// of other runs are left alone. Not Collective.
  void forget_others();
  /// All is done; nothing is kept, also not of the run that was gone on from, unless that has ranks again. To
  /// be called by all ranks, behind wait(). Not Collective.
  void remove();
  /// Waits, and leaves the group in which copies travel. Collective. @throws as wait()
  void close();

 private:
  std::filesystem::path place_of(const LocalCandidate& candidate) const;
  // What came of this rank's files.
  struct Begun {
    std::filesystem::file_time_type taken = {};  // when they were written, which is what counts
    std::exception_ptr failure = {};             // to be told to all ranks
  };
  void complete(Saving& saving, const Begun& begun, const std::filesystem::path& target);
  void warn_of_failure();
  void hold_folder();
  void forget_resumed();
  void refuse_unusable(const LocalCandidate& candidate) const;

  Communicator communicator_;
  Communicator group_;  // of the thread
  std::filesystem::path root_;
  std::filesystem::path folder_;  // of this run
  UniqueFd lock_;                 // of the rank that leads the node: tells other runs that this one lives
  FolderNodes nodes_;
  int copies_;                     // of each file, beside the first
  std::filesystem::path resumed_;  // what was opened last; empty: nothing, or it is dealt with
  std::exception_ptr failure_;     // of the thread, which is joined before it is read
  std::jthread thread_;
};

}  // namespace lockstep::detail
