#include "train/loops/transfer_batch.h"

#include <utility>

namespace lockstep {

AnyBatchTransfer::~AnyBatchTransfer() = default;

namespace detail {

AnyBatch transferred(RunState& state, AnyBatch batch, std::int64_t batch_idx, std::int64_t dataloader_idx) {
  if (batch.empty()) return batch;
  for (const auto hook : {TransferHook::kBefore, TransferHook::kTransfer, TransferHook::kAfter}) {
    StepContext step(state, batch_idx, batch, dataloader_idx);
    std::optional<AnyBatch> made;
    if (state.data_module) made = state.data_module->any_transfer(hook, batch, step);
    if (!made) made = state.module->any_transfer(hook, batch, step);
    if (made) batch = *std::move(made);
  }
  return batch;
}

}  // namespace detail
}  // namespace lockstep
