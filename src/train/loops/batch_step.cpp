#include "train/loops/batch_step.h"

#include <lockstep/base/error.h>

#include "device/batch_transfer.h"

namespace lockstep::detail {

std::optional<AnyBatch> batch_on_device(const RunSetup& setup, const AnyBatch& batch) {
  const auto device = setup.strategy->root_device();
  if (device.is_cpu()) return std::nullopt;
  bool has_tensors = false;
  auto moved = batch.with_tensors([&](const at::Tensor& tensor) {
    has_tensors = true;
    return part_to_device(tensor, device);
  });
  finish_batch(device);
  if (has_tensors) return moved;
  throw ConfigError("train",
                    {.what = "the tensors of a batch cannot be moved to " + device.str(),
                     .expected = "a function with_tensors(batch, change) beside the type of the batch, or "
                                 "transfer_batch_to_device() of the module",
                     .got = "a type of batch whose tensors lockstep does not know"});
}

}  // namespace lockstep::detail
