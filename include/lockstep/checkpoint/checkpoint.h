// Checkpoints: a StateTree, spread over ranks, as a folder that is complete or absent; written at once, while
// training goes on, or as a program's own CheckpointIO does.
//
// docs/checkpoint-format.md describes the folder: safetensors files, whose tensors Python reads under
// PyTorch's names, and a manifest.json with everything else and a checksum of every byte.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

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

/// How a checkpoint is written.
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

  /// What the checkpoint says of itself.
  const CheckpointInfo& info() const;
  /// The folder of the checkpoint.
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

/// Lightning's CheckpointIO. Each function does what lockstep does by itself; a derived class adds to it,
/// such as copying the folder to a store once it is complete, fetching it from there, or keeping what would
/// be removed.
class LOCKSTEP_API CheckpointIO {
 public:
  virtual ~CheckpointIO();

  /// Writes `folder`. Collective, blocking. @throws as save_checkpoint()
  virtual void save(const std::filesystem::path& folder, const CheckpointState& state,
                    const CheckpointInfo& info, const Communicator& communicator);

  /// Opens `folder`, which save() wrote. Collective, blocking. @throws as Checkpoint
  virtual Checkpoint load(const std::filesystem::path& folder, Verify verify,
                          const Communicator& communicator);

  /// Removes `folder`, of which a newer one has taken the place. Called on rank 0 alone.
  virtual void remove(const std::filesystem::path& folder);
};

/// Copies the state and writes it in a background thread, one checkpoint at a time. Training waits only for
/// the copy, which goes to memory that is reused from one checkpoint to the next.
class LOCKSTEP_API CheckpointWriter {
 public:
  /// Creates a separate group of the ranks of `communicator`. Collective, blocking.
  explicit CheckpointWriter(const Communicator& communicator = {});
  /// Waits for the checkpoint that is being written; a failure that wait() has not reported is logged.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// As save_checkpoint(), but returns when `state` is copied; the state may then change. Waits for the
  /// checkpoint before. Collective.
  /// @throws what that one failed with; nothing is begun then
  void save(const std::filesystem::path& folder, const CheckpointState& state, const CheckpointInfo& info,
            const SaveOptions& options = {});

  /// Blocks until nothing is being written. @throws what the last save() failed with, once
  void wait();

  /// Whether wait() would return at once.
  bool is_idle() const { return !is_writing_; }

 private:
  at::Tensor reused_copy(const at::Tensor& tensor, std::size_t number);

  Communicator communicator_;
  std::vector<at::Tensor> buffers_;  // by the number of the tensor in the state
  std::atomic<bool> is_writing_{false};
  std::exception_ptr failure_;  // of the thread, which is joined before it is read
  std::jthread thread_;
};

}  // namespace lockstep
