// Checkpoints written while training goes on.
#pragma once

#include <atomic>
#include <exception>
#include <filesystem>
#include <thread>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/checkpoint/checkpoint.h>

namespace lockstep {

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
