// What a module's configure_optimizers() returns.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/optim/scheduler_options.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

/// An optimizer and, if wanted, what steps its learning rate:
/// `return {.optimizer = AdamW{.lr = 3e-4}, .lr_scheduler = LRScheduler{.scheduler = StepLR{.step_size =
/// 10}}};`
struct Optimizers {
  OptimizerFactory optimizer = {};
  std::optional<LRScheduler> lr_scheduler = {};
  /// Whose parameters it trains: a part of the module, such as a GAN's generator. All of the module's where
  /// none is named. Of several optimizers name either every one's part or none's; parts share no parameter.
  std::shared_ptr<torch::nn::Module> module = {};
  /// Further ones, for manual optimisation: several_optimizers() fills it in.
  std::vector<Optimizers> others = {};
};

/// Several optimizers, numbered from 0:
///
///     return ls::several_optimizers({{.optimizer = ls::Adam{.lr = 2e-4}, .module = generator.ptr()},
///                                    {.optimizer = ls::Adam{.lr = 2e-4}, .module = discriminator.ptr()}});
LOCKSTEP_API Optimizers several_optimizers(std::vector<Optimizers> optimizers);

}  // namespace lockstep
