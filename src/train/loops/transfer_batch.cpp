#include "train/loops/transfer_batch.h"

#include <optional>
#include <utility>

namespace lockstep {

AnyBatchTransfer::~AnyBatchTransfer() = default;

namespace detail {

void transfer(AnyDataModule* data, AnyModule& module, AnyBatch& batch, StepContext& step) {
  if (batch.empty()) return;
  for (const auto hook : {TransferHook::kBefore, TransferHook::kTransfer, TransferHook::kAfter}) {
    std::optional<AnyBatch> made;
    if (data != nullptr) made = data->any_transfer(hook, batch, step);
    if (!made) made = module.any_transfer(hook, batch, step);
    if (made) batch = *std::move(made);
  }
}

}  // namespace detail
}  // namespace lockstep
