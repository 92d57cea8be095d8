// Checkpoints: a StateTree, spread over ranks, as a folder that is complete or absent.
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
  /// The state that all ranks have in common: the same tree on each. Tensors are equal; of a TensorShard each
  /// rank has its own run, and together the runs are the whole tensor.
  StateTree shared = {};
  /// The state of this rank alone.
  StateTree own = {};
};

struct SaveOptions {
  EnumOption<StateDictType> state_dict_type =
      StateDictType::kFull;  ///< who writes the tensors that all ranks have
};

/// Writes `folder`, which all ranks must see, and the missing folders above it. The folder gets its name when
/// it is complete and durable; an older checkpoint of that name is removed after that. State that could not
/// be read again is refused before anything is written: names that are no UTF-8 (texts may hold any bytes),
/// trees nested in more than 31 trees, entries named "ranks", and entries whose files would have the same
/// name. Collective, blocking.
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
  /// Opens the checkpoint on all ranks: with Verify::kAll each rank checks a share of the bytes, and no rank
  /// continues with files that another rank found damaged. Collective, blocking.
  /// @throws on every rank: those that found something as above, the others CheckpointError naming the rank
  ///   that did; CheckpointError where ranks have opened different checkpoints
  Checkpoint(const std::filesystem::path& folder, Verify verify, const Communicator& communicator);
  /// For the library: wraps files that are open already.
  explicit Checkpoint(std::shared_ptr<const detail::CheckpointFiles> files) : files_(std::move(files)) {}

  const CheckpointInfo& info() const;
  const std::filesystem::path& folder() const;

  /// CheckpointState::shared, with all tensors whole. @throws as the constructor
  StateTree shared() const;
  /// The same, but with only the runs of tensors that `wanted` has as shards under the same path.
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
