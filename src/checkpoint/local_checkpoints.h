// Checkpoints in the memory of the nodes that train: a folder on each, such as one in /dev/shm.
//
// A local checkpoint is a checkpoint like any other (docs/checkpoint-format.md), but no node has all of it: a
// node has the manifest, the files that its own ranks wrote, and copies of those of the
// replication_factor - 1 nodes before it. As long as one of so many neighbours is left, nothing is lost.
// The files are the snapshot: writing them is all that training waits for; copies travel in the background.
// A local checkpoint gets its name on a node when all nodes have their files, and the previous one is removed
// when the new one has its name on all nodes.
//
// The scheme is that of GEMINI (Wang et al., SOSP 2023) and of LocalCheckpointManager with
// CliqueReplicationStrategy in NVIDIA's resiliency extension.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>
#include <lockstep/checkpoint/checkpoint.h>
#include <lockstep/comm/communicator.h>

#include "checkpoint/node_folders.h"

namespace lockstep::detail {

/// A local checkpoint of which nodes have parts; the same on all ranks.
struct LocalCandidate {
  std::string place;                             ///< below the folder of each node: RUN/step=N
  std::string checksum;                          ///< of its manifest
  std::filesystem::file_time_type written = {};  ///< by rank 0's clock, on all nodes
  int world_size = 0;
  std::size_t files = 0;              ///< how many it has
  std::map<int, FileList> held = {};  ///< the complete files, by node
};

/// The permissions that other users must not have for a folder.
inline constexpr mode_t kNobodyElse = 077;        ///< no access at all
inline constexpr mode_t kNobodyElseWrites = 022;  ///< no changes of its content

/// Creates `folder` with mode 0700, unless it exists; the folder above must exist. @throws IoError where it
/// cannot be created; ConfigError where the path is a link, no folder, or another user's folder, or where
/// other users have a `forbidden` permission
void make_private_folder(const std::filesystem::path& folder, mode_t forbidden = kNobodyElse);

/// Whether `folder` exists and belongs to this user alone.
bool is_private_folder(const std::filesystem::path& folder);

/// "step=N".
std::string name_of_local(std::int64_t global_step);
/// Whether the last part of `folder` is such a name: neither a draft, nor anything else.
bool is_name_of_local(const std::filesystem::path& folder);

/// The local checkpoints of `runs`, of which rank 0's value is used, below `root`, which may differ between
/// ranks; the latest first. Collective, blocking.
std::vector<LocalCandidate> find_local(const std::filesystem::path& root,
                                       const std::vector<std::string>& runs, const FolderNodes& nodes,
                                       const Communicator& communicator);

/// The files of `candidate` that no node has, as text for a message; empty where none is lost. Collective,
/// blocking.
/// @throws as read_together(), of a manifest that can no longer be read
std::string lost_files(const std::filesystem::path& root, const LocalCandidate& candidate,
                       const FolderNodes& nodes, const Communicator& communicator);

/// Removes unfinished files that killed processes have left in `folder`. Not Collective.
void remove_unfinished(const std::filesystem::path& folder);

/// Completes `candidate` on each node, in the folder `target`, with the time at which it was written. Memory:
/// 8 MiB, beside the files. Collective, blocking.
/// @throws on every rank, once all is sent and received: IoError on the rank whose file could not be read or
/// written, CheckpointError naming that rank on the others; CommError
void fetch_files(const std::filesystem::path& target, const LocalCandidate& candidate,
                 const FolderNodes& nodes, const Communicator& communicator);

/// Sends this rank's `files` in `folder` to the next `copies` nodes, and writes what the previous nodes send
/// to `folder`. Each rank exchanges files with the ranks of the same index on other nodes, so that all links
/// are used at once. Memory: 8 MiB for each rank that sends to this one. Collective, blocking.
/// @throws CommError; once all is sent and received, what has failed with a file of this rank, such as
/// IoError
void replicate(const std::filesystem::path& folder, const FileList& files, int copies,
               const FolderNodes& nodes, const Communicator& communicator);

class Saving;

class LOCKSTEP_API LocalCheckpoints {
 public:
  /// The local checkpoints of the run `run_dir` in `root`, or in a folder of this user in /dev/shm where
  /// `root` is empty. Ranks may name different roots: ranks that share one are a node. Each file is stored on
  /// `replication_factor` nodes, or on all where there are fewer. Removes unfinished files of ranks that were
  /// killed. Collective, blocking.
  /// @throws on every rank: where a rank's folder cannot be used, its own ConfigError or IoError, on the
  ///   others CheckpointError
  LocalCheckpoints(const std::filesystem::path& root, const std::filesystem::path& run_dir,
                   int replication_factor, const Communicator& communicator);
  /// Waits for the last checkpoint; a failure that wait() has not reported is logged.
  ~LocalCheckpoints();
  LocalCheckpoints(const LocalCheckpoints&) = delete;
  LocalCheckpoints& operator=(const LocalCheckpoints&) = delete;

  /// Returns when this rank's files are written; the state may then change. Waits for the previous
  /// checkpoint; if that has failed, rank 0 warns. Collective. @throws CommError
  void save(const CheckpointState& state, const CheckpointInfo& info);
  /// Blocks until the last one is complete on all nodes. @throws what it failed with, once
  void wait();

  /// The local checkpoints of the runs `run_dirs` of rank 0 that nodes have, the latest first. Damaged
  /// manifests are reported in a warning. Collective, blocking.
  std::vector<LocalCandidate> find(const std::vector<std::filesystem::path>& run_dirs) const;

  /// Opens a local checkpoint on all ranks; a node that lacks files gets them from another one first. With
  /// Verify::kAll the ranks of a node each check a share of the bytes. Collective, blocking.
  /// @throws on every rank: CheckpointError naming the files that no node has any more, another number of
  ///   ranks, or what is damaged, on which rank; IoError where a node has no room
  Checkpoint open(const LocalCandidate& candidate, Verify verify);

  /// To be called when a fit begins: removes all checkpoints of this run but the one that was opened last,
  /// which is needed until the next one is complete. Not Collective.
  void forget_others();
  /// Removes all local checkpoints at the end of a run, also those of the run that it was resumed from,
  /// unless that has ranks again. To be called by all ranks after wait(). Not Collective.
  void remove();
  /// Waits, and closes the group in which copies are sent. Collective. @throws as wait()
  void close();

 private:
  std::filesystem::path place_of(const LocalCandidate& candidate) const;
  // The outcome of writing this rank's files.
  struct Begun {
    std::filesystem::file_time_type taken = {};  // when they were written
    std::exception_ptr failure = {};             // reported to all ranks
  };
  void complete(Saving& saving, const Begun& begun, const std::filesystem::path& target);
  void warn_of_failure();
  void hold_folder();
  void forget_resumed();
  void refuse_unusable(const LocalCandidate& candidate) const;

  Communicator communicator_;
  Communicator group_;  // used by the background thread
  std::filesystem::path root_;
  std::filesystem::path folder_;  // of this run
  UniqueFd lock_;  // held by the rank that leads the node; tells other runs that this one is running
  FolderNodes nodes_;
  int copies_;                     // of each file, beside the first
  std::filesystem::path resumed_;  // the checkpoint that was opened last; may be empty
  std::exception_ptr failure_;     // set by the background thread, which is joined before it is read
  std::jthread thread_;
};

}  // namespace lockstep::detail
