// Activations that are kept outside of memory from forward to backward, for the passes through chosen
// modules: those of the CPU on disk, those of a device on the host or on disk.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <lockstep/base/export.h>
#include <lockstep/parallel/activations.h>
#include <lockstep/parallel/dispatch/tensor_mark.h>

#include "device/pinned_staging.h"
#include "offload/mapped_memory.h"
#include "parallel/activations/module_policies.h"
#include "parallel/dispatch/backward_thread.h"

namespace lockstep::detail {

/// Copies go both ways on a stream of their own, beside what is computed. Backward uses copies in the
/// opposite order: each brings the previous one along. The host waits for none of it.
class HostCopy final : public SavedMemory {
 public:
  /// Copies `memory` as it is for the current stream to `bytes`, of the host: through `staging`, or without
  /// one where it is page-locked. `previous`: what was copied before.
  HostCopy(const c10::Storage& memory, at::Tensor bytes, std::shared_ptr<PinnedStaging> staging,
           std::weak_ptr<HostCopy> previous);

  /// Memory of the device with these bytes, ready for the current stream.
  c10::Storage storage() override;

 private:
  void fetch();
  void read_ahead() const;

  const at::Device device_;
  const c10::Stream stream_;
  const std::shared_ptr<PinnedStaging> staging_;
  const std::weak_ptr<HostCopy> previous_;
  const at::Tensor bytes_;  // on the host
  at::Tensor fetched_;      // on the device, until it is used
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> in_use_ = {};
};

/// Copies the memory of tensors, once for all tensors that lie in it: of the CPU into mapped files, of a
/// device there or, without a folder, to page-locked memory of the host. Parameters and tensors of less than
/// `min_bytes` stay where they are. Thread-safe.
class LOCKSTEP_API ActivationStore final : public SavedTensorStore {
 public:
  /// Without a folder tensors of the CPU stay where they are, too.
  ActivationStore(std::optional<offload::SwapFolder> folder, std::int64_t min_bytes);

  /// Blocks while bytes are copied; they reach the disk when the system needs the memory.
  /// @throws IoError where the disk has no room
  SavedTensor keep(const at::Tensor& tensor) override;

  /// Of files.
  std::uint64_t bytes_in_use() const { return pool_ ? pool_->bytes_in_use() : 0; }

 private:
  class Copy;
  struct Source {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // weak: keeps the address from being used again
    std::int64_t version = 0;                           // of what was copied
    std::weak_ptr<SavedMemory> copy = {};
  };

  bool takes(const at::Tensor& tensor) const;
  std::shared_ptr<SavedMemory> copy_of(const at::Tensor& tensor);
  std::shared_ptr<SavedMemory> copied(const c10::Storage& memory);
  std::shared_ptr<SavedMemory> copied_from_device(const c10::Storage& memory);
  void forget_what_is_gone();

  const std::shared_ptr<offload::MappedPool> pool_;  // null without a folder
  const std::uint64_t min_bytes_;
  std::mutex mutex_;  // guards all below
  std::unordered_map<const c10::StorageImpl*, Source> sources_;
  std::size_t most_sources_ = 64;  // above this number, freed sources are removed
  std::weak_ptr<Copy> latest_;
  std::weak_ptr<HostCopy> latest_on_host_;
  std::shared_ptr<PinnedStaging> staging_;  // of a device, with a folder
};

/// From the first operator that uses one of the module's parameters until backward, tensors that this thread
/// saves for backward go to an ActivationStore. Only where gradients are enabled.
class OffloadedActivations final : public UseHandler, public ModulePolicy {
 public:
  /// @throws ConfigError for a directory that cannot be used, a module without parameters, min_bytes < 1
  /// @param device  on which the module computes; where that is the CPU, no directory means that of temporary
  /// files
  OffloadedActivations(const torch::nn::Module& module, const ActivationOffload& options, int rank,
                       at::Device device);

  void announce(std::span<const TensorUse> uses) override;
  void before_use(OperatorCall&, std::span<const TensorUse>) override {}
  void mark_again() override;

 private:
  void mark();

  const std::shared_ptr<ActivationStore> store_;
  const std::vector<at::Tensor> parameters_;
  std::vector<std::unique_ptr<TensorMark>> marks_;
};

}  // namespace lockstep::detail
