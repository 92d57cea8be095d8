// What a module's configure_optimizers() returns.
#pragma once

#include <optional>

#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/optim/scheduler_options.h>

namespace lockstep {

/// An optimizer and, if wanted, what steps its learning rate:
/// `return {.optimizer = AdamW{.lr = 3e-4}, .lr_scheduler = LRScheduler{.scheduler = StepLR{.step_size =
/// 10}}};` The Trainer refuses an empty optimizer.
struct Optimizers {
  OptimizerFactory optimizer = {};
  std::optional<LRScheduler> lr_scheduler = {};
};

}  // namespace lockstep
