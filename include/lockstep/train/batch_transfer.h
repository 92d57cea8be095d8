// The hooks that a batch passes on its way from the loader to the step: of modules and data modules.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include <lockstep/base/export.h>
#include <lockstep/data/any_loader.h>
#include <lockstep/train/train_context.h>

namespace lockstep {

/// In the order in which they are called.
enum class TransferHook {
  kBefore,    ///< before the batch is moved
  kTransfer,  ///< in place of the move
  kAfter      ///< after it was moved
};

/// The part that does not depend on the type of the batch; the loops see only this.
class LOCKSTEP_API AnyBatchTransfer {
 public:
  virtual ~AnyBatchTransfer();
  /// What the hook makes of `batch`; none: it stays as it is.
  virtual std::optional<AnyBatch> any_transfer(TransferHook hook, const AnyBatch& batch,
                                               StepContext& step) = 0;
};

/// Gives `Base`, which is an AnyBatchTransfer, the hooks for batches of type `Batch`.
template <class Batch, class Base>
class BatchTransfer : public Base {
 public:
  /// Called with every batch of every stage before on_*_batch_start, on each rank for itself, in this order.
  /// What a hook returns takes the place of the batch; none, the default: it stays as it is. Where a data
  /// module returns one, the module's hook of the same name is not called. The precision has converted the
  /// batch already. Where no transfer_batch_to_device() returns one, the batch's tensors go to this rank's
  /// device (step.device()); that of a type of your own need a with_tensors() then, see data/any_loader.h.
  virtual std::optional<Batch> on_before_batch_transfer(const Batch& /*batch*/, StepContext& /*step*/) {
    return std::nullopt;
  }
  /// Moves the batch to the device in one's own way; none: as lockstep does.
  virtual std::optional<Batch> transfer_batch_to_device(const Batch& /*batch*/, StepContext& /*step*/) {
    return std::nullopt;
  }
  /// Changes the batch on the device; none: it stays as it is.
  virtual std::optional<Batch> on_after_batch_transfer(const Batch& /*batch*/, StepContext& /*step*/) {
    return std::nullopt;
  }

  /// Calls the hook for a batch of this type.
  std::optional<AnyBatch> any_transfer(TransferHook hook, const AnyBatch& batch, StepContext& step) final {
    auto value = transferred(hook, batch.get<Batch>(), step);
    if (!value) return std::nullopt;
    AnyBatch made(std::make_shared<const Batch>(*std::move(value)), batch.size());
    made.set_indices(batch);
    return made;
  }

 private:
  std::optional<Batch> transferred(TransferHook hook, const Batch& batch, StepContext& step) {
    switch (hook) {
      case TransferHook::kBefore:
        return on_before_batch_transfer(batch, step);
      case TransferHook::kTransfer:
        return transfer_batch_to_device(batch, step);
      case TransferHook::kAfter:
        break;
    }
    return on_after_batch_transfer(batch, step);
  }
};

}  // namespace lockstep
