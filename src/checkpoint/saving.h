// What one rank does for a checkpoint that all of them write, wherever its files go.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/checkpoint/checkpoint.h>

#include "checkpoint/save_plan.h"
#include "formats/checkpoint_manifest.h"

namespace lockstep::detail {

/// Who writes the tensors of an entry of the state that all ranks have whole.
using TypeOfEntry = std::function<StateDictType(const std::string& entry)>;

/// The steps of saving, in their order. Not Collective: what ranks tell each other passes through the hands
/// of the caller.
class Saving {
 public:
  Saving(const CheckpointInfo& info, const Communicator& communicator, TypeOfEntry type_of);

  /// Plans; nothing is written yet. @throws CheckpointError for what could not be read again
  void take(const CheckpointState& state);

  /// Writes this rank's files to `folder`. Blocking. @throws IoError
  void write_files(const std::filesystem::path& folder);

  /// Lets go of the tensors that were taken.
  void forget_tensors() { entries_.clear(); }

  /// What this rank wrote.
  const std::map<std::string, FileRecord>& files() const { return manifest_.files; }

  /// The same with the rank's own values, for rank 0.
  std::string part() const;

  /// On rank 0: what all ranks wrote, by rank.
  void take_parts(std::span<const std::string> parts);

  /// On rank 0, behind take_parts(): the files that Hugging Face's readers look for. Blocking. @throws
  /// IoError
  void write_indices(const std::filesystem::path& folder);

  /// On rank 0, in the end. @throws CheckpointError where it could not be read again
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
