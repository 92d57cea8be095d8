// What one rank does for a checkpoint that all of them write, wherever its files go.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/checkpoint/checkpoint.h>

#include "checkpoint/state_formats.h"
#include "formats/checkpoint_files.h"

namespace lockstep::detail {

// save_checkpoint() of a state that is created later.

/// Gives the state, or throws.
using StateSource = std::function<const CheckpointState&()>;

/// As save_checkpoint(); when `state` throws on one rank, all ranks fail as for any other failure.
void save_checkpoint_of(const std::filesystem::path& folder, const StateSource& state,
                        const CheckpointInfo& info, const Communicator& communicator,
                        const SaveOptions& options);

// Who writes which tensor of a checkpoint, and into which file.

/// The first name in the paths of tensors that belong to one rank alone.
inline constexpr auto kOwnEntry = "ranks";

/// The part of one entry of the state that this rank writes.
struct Share {
  TensorLeaves leaves;
  std::string file;                     ///< `model.safetensors`, or one of several as Hugging Face names them
  std::vector<std::string> files = {};  ///< those of all ranks
};

/// The share of rank `rank`. Not Collective: every rank computes the same plan, since all know the same
/// tensors, except for the runs of shards, which each rank writes itself.
Share share_of(const std::string& entry, TensorLeaves leaves, StateDictType type, int rank, int world_size);

/// The share of the state that belongs to `rank` alone: all of it.
Share own_share(TensorLeaves leaves, int rank, int world_size);

/// @throws CheckpointError unless `entry` can be the name of a file, and differs from kOwnEntry
void check_entry_name(const std::string& entry);

/// Which ranks write the tensors of an entry that all ranks have whole.
using TypeOfEntry = std::function<StateDictType(const std::string& entry)>;

/// The steps of saving, in their order. Not Collective: the caller exchanges what ranks need to know of each
/// other.
class Saving {
 public:
  Saving(const CheckpointInfo& info, const Communicator& communicator, TypeOfEntry type_of);

  /// Plans which files this rank writes; writes nothing yet. @throws CheckpointError for state that could not
  /// be read again
  void take(const CheckpointState& state);

  /// Writes this rank's files to `folder`. Blocking. @throws IoError
  void write_files(const std::filesystem::path& folder);

  /// Releases the tensors that were taken.
  void forget_tensors() { entries_.clear(); }

  /// What this rank wrote.
  const std::map<std::string, FileRecord>& files() const { return manifest_.files; }

  /// The record of this rank for rank 0: its files and the values of its own state.
  std::string part() const;

  /// On rank 0: takes the part() of every rank, by rank.
  void take_parts(std::span<const std::string> parts);

  /// On rank 0, after take_parts(): writes the index files that Hugging Face's readers look for. Blocking.
  /// @throws IoError
  void write_indices(const std::filesystem::path& folder);

  /// On rank 0, at the end: the manifest. @throws CheckpointError where it could not be read again
  std::string manifest_text() const;

 private:
  void check_info() const;
  void take_shared(const StateTree& state);
  void take_own(const StateTree& state);

  struct Entry {
    std::size_t cut;  // characters of a path that the file's name stands for
    Share share;
  };

  int rank_;
  int world_size_;
  TypeOfEntry type_of_;
  Manifest manifest_;
  nlohmann::ordered_json own_;
  std::vector<Entry> entries_;
};

/// Writes the manifest and its checksum: the last files of a checkpoint. Blocking. @throws IoError
void write_manifest(const std::filesystem::path& folder, const std::string& text);

}  // namespace lockstep::detail
