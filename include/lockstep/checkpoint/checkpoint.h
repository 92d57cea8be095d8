// Checkpoints: a StateTree, spread over ranks, as a folder that is complete or not there at all.
//
// docs/checkpoint-format.md describes the folder: safetensors files, whose tensors Python reads under
// PyTorch's names, and a manifest.json with everything else and a checksum of every byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/formats/checkpoint_info.h>
#include <lockstep/state/module_state.h>
#include <lockstep/state/state_tree.h>

namespace lockstep {

namespace detail {
class CheckpointFiles;
}

/// What a checkpoint holds.
struct CheckpointState {
  /// What all ranks have in common: the same tree on each. Tensors are equal; of a TensorShard each rank
  /// gives its own run, and together the runs are the whole tensor.
  StateTree shared = {};
  /// What this rank has for itself.
  StateTree own = {};
};

struct SaveOptions {
  EnumOption<StateDictType> state_dict_type =
      StateDictType::kFull;  ///< who writes the tensors that all ranks have
};

/// Writes `folder`, which all ranks must see, and the folders above it that are not there. It gets its name
/// when it is complete and durable; an older one of that name is removed after that. What cannot be read
/// again is refused before anything is written: names that are no UTF-8 (texts are kept, whatever they
/// are), trees in more than 31 trees, entries named "ranks", or so that two files would have one name.
/// Collective, blocking.
/// @throws IoError on every rank, naming the one that failed and why; what was there before is untouched then
LOCKSTEP_API void save_checkpoint(const std::filesystem::path& folder, const CheckpointState& state,
                                  const CheckpointInfo& info, const Communicator& communicator = {},
                                  const SaveOptions& options = {});

/// An open checkpoint. A cheap value: copies share the open files. Every rank reads what it needs for itself.
///
/// Tensors lie in the pages of the files, which are read when they are touched, and may be written to: that
/// never reaches the file.
class LOCKSTEP_API Checkpoint {
 public:
  /// @throws IoError when it cannot be read; CheckpointError naming file (and tensor) when it is damaged, is
  ///   no checkpoint, or one of a newer format
  explicit Checkpoint(const std::filesystem::path& folder, Verify verify = Verify::kAll);
  /// The same on all ranks: of Verify::kAll each checks a share of the bytes, and no rank goes on with what
  /// another one found damaged. Collective, blocking.
  /// @throws on every rank: those that found something as above, the others CheckpointError naming the rank
  ///   that did; CheckpointError where ranks have opened different checkpoints
  Checkpoint(const std::filesystem::path& folder, Verify verify, const Communicator& communicator);
  /// For the library: what is open already.
  explicit Checkpoint(std::shared_ptr<const detail::CheckpointFiles> files) : files_(std::move(files)) {}

  const CheckpointInfo& info() const;
  const std::filesystem::path& folder() const;

  /// CheckpointState::shared, with all tensors whole. @throws as the constructor
  StateTree shared() const;
  /// The same, but of tensors that `wanted` has as shards under the same path, just these runs.
  StateTree shared(const StateTree& wanted) const;

  /// The tree under `name` in CheckpointState::shared, such as "model"; nothing else is read.
  /// @throws CheckpointError naming what there is instead
  StateTree entry(const std::string& name) const;

  /// CheckpointState::own of `rank`, as it was. @throws CheckpointError unless 0 <= rank < world_size
  StateTree own(int rank) const;

 private:
  std::shared_ptr<const detail::CheckpointFiles> files_;
};

}  // namespace lockstep
