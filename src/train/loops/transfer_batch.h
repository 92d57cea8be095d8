// A batch on its way from the loader to the step.
#pragma once

#include <lockstep/train/data_module.h>
#include <lockstep/train/module.h>

namespace lockstep::detail {

/// Lets the transfer hooks of `data`, which may be null, and of `module` change `batch`, which `step` is
/// about. An empty one passes none.
void transfer(AnyDataModule* data, AnyModule& module, AnyBatch& batch, StepContext& step);

}  // namespace lockstep::detail
