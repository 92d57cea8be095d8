// An optimizer of a run, and what steps its learning rate.
#pragma once

#include <memory>
#include <optional>

#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/scheduler.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

/// Made from what configure_optimizers() returned; owned by the Trainer while it fits.
struct RunOptimizer {
  std::shared_ptr<torch::nn::Module> module = {};  ///< whose parameters it trains
  std::unique_ptr<Optimizer> optimizer = {};
  std::optional<LRScheduler> lr_scheduler = {};  ///< as it was configured
  std::unique_ptr<Scheduler> scheduler = {};     ///< null without lr_scheduler
};

}  // namespace lockstep
