#include "train/loops/set_up_optimizers.h"

#include <algorithm>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/torch.h>

#include "optim/schedule.h"
#include "strategy/scaled_step.h"
#include "train/data/data_place.h"

namespace lockstep::detail {
namespace {

// Flattens Optimizers::others, in the order of the optimizers' numbers.
std::vector<Optimizers> numbered(Optimizers first) {
  auto others = std::exchange(first.others, {});
  std::vector<Optimizers> all;
  if (first.optimizer || !others.empty()) all.push_back(std::move(first));
  for (auto& other : others) {
    for (auto& one : numbered(std::move(other))) all.push_back(std::move(one));
  }
  return all;
}

void refuse_option(const std::string& option, const std::string& got) {
  throw ConfigError("train", {.what = option + " with manual optimisation",
                              .expected = "that option not to be set: training_step does this itself",
                              .got = got,
                              .hint = "remove it, or use automatic optimisation"});
}

// The first of `keys` that DeepSpeed's file has, or `option` where it has none of them.
std::string asked_for_by(const RunSetup& setup, std::initializer_list<const char*> keys, const char* option) {
  for (const auto* const key : keys)
    if (setup.deepspeed && setup.deepspeed->is_given(key)) return setup.deepspeed->named(key);
  return option;
}

// Every step() does the clipping that DeepSpeed's file asks for, as DeepSpeed's engine does.
void check_manual(const RunSetup& setup) {
  const auto& options = setup.options;
  if (options.accumulate_grad_batches != 1)
    refuse_option(
        asked_for_by(setup, {"gradient_accumulation_steps", "train_batch_size"}, "accumulate_grad_batches"),
        options.accumulate_grad_batches.print());
  const bool is_in_file = setup.deepspeed && setup.deepspeed->is_given("gradient_clipping");
  if (options.gradient_clip_val && !is_in_file)
    refuse_option("gradient_clip_val", std::to_string(*options.gradient_clip_val));
}

void check_number(const RunSetup& setup, std::size_t number) {
  if (!setup.module->automatic_optimization()) return check_manual(setup);
  if (number == 1) return;
  const bool none = number == 0;
  throw ConfigError("train",
                    {.what = none ? "configure_optimizers gave no optimizer"
                                  : "configure_optimizers gave several optimizers for automatic optimisation",
                     .expected = "one: ls::AdamW{...}, ls::SGD{...} or a function that makes one",
                     .got = none ? "an empty Optimizers" : std::to_string(number),
                     .hint = none ? ""
                                  : "override automatic_optimization() to return false, and step them in "
                                    "training_step"});
}

void check_each(const std::vector<Optimizers>& all) {
  const auto named = std::ranges::count_if(all, [](const auto& one) { return one.module != nullptr; });
  if (named != 0 && named != std::ssize(all)) {
    throw ConfigError("train", {.what = "optimizers of which only some name the module that they train",
                                .expected = "a module for every one of them, or for none",
                                .got = std::to_string(named) + " of " + std::to_string(all.size())});
  }
  for (const auto& one : all) {
    if (!one.optimizer) {
      throw ConfigError("train", {.what = "configure_optimizers gave an empty optimizer among others",
                                  .expected = "ls::AdamW{...}, ls::SGD{...} or a function that makes one"});
    }
    if (one.lr_scheduler && one.lr_scheduler->monitor.empty() &&
        std::holds_alternative<ReduceLROnPlateau>(one.lr_scheduler->scheduler)) {
      throw ConfigError("train", {.what = "LRScheduler::monitor of ReduceLROnPlateau",
                                  .expected = "the name of a logged metric, such as \"val_loss\"",
                                  .got = "none"});
    }
    if (one.lr_scheduler && one.lr_scheduler->frequency < 1) {
      throw ConfigError("train", {.what = "LRScheduler::frequency",
                                  .expected = ">= 1",
                                  .got = std::to_string(one.lr_scheduler->frequency)});
    }
  }
}

void require_part(const RunSetup& setup, const torch::nn::Module& module) {
  const auto parts = setup.module->modules();
  if (std::ranges::any_of(parts, [&](const auto& part) { return part.get() == &module; })) return;
  throw ConfigError("train", {.what = "an optimizer's module is no part of the module that is trained",
                              .expected = "one that it has registered, or itself",
                              .got = module.name()});
}

void require_disjoint(const RunSetup& setup, const torch::nn::Module& module) {
  for (const auto& parameter : module.named_parameters()) {
    if (!setup.trained.has(parameter.value())) continue;
    throw ConfigError("train", {.what = "two optimizers' modules share a parameter",
                                .expected = "modules without a common parameter, or the same module",
                                .got = parameter.key() + " of " + module.name()});
  }
}

void set_up_module(RunSetup& setup, const std::shared_ptr<torch::nn::Module>& module) {
  if (setup.trained.find(*module)) return;
  require_part(setup, *module);
  require_disjoint(setup, *module);
  setup.strategy->setup_module(module);
  setup.trained.add(module);
}

void check_closure(const RunSetup& setup, const Optimizer& optimizer) {
  if (!optimizer.needs_closure() || setup.options.accumulate_grad_batches == 1) return;
  throw ConfigError("train", {.what = "accumulate_grad_batches with " + std::string(optimizer.name()),
                              .expected = "1: this optimizer evaluates the loss of its batch several times",
                              .got = setup.options.accumulate_grad_batches.print()});
}

void set_up_scheduler(const RunSetup& setup, RunOptimizer& made) {
  const auto& options = made.lr_scheduler->scheduler;
  made.scheduler = std::make_unique<Scheduler>(options, *made.optimizer);
  if (cycles_betas(options) && !made.optimizer->groups().front().betas && setup.is_global_zero())
    log_warning("OneCycle's cycle_momentum has no effect: optimizer " + std::string(made.optimizer->name()) +
                " has no betas");
}

// A callback may have changed accumulate_grad_batches since the options were checked.
Optimizers completed_by_deepspeed(const RunSetup& setup, const RunData& data, const FitProgress& progress,
                                  Optimizers own) {
  check_accumulation(setup.options.accumulate_grad_batches, *setup.deepspeed,
                     setup.environment->world_size());
  auto result = completed(std::move(own), *setup.deepspeed, std::get<DeepSpeed>(setup.options.strategy),
                          trained_batches(setup, data, progress));
  if (!setup.is_global_zero()) return result.optimizers;
  for (const auto& warning : result.warnings) log_warning(warning);
  if (!result.filled.empty()) log_info("deepspeed: " + result.filled);
  return result.optimizers;
}

}  // namespace

TrainedBatches trained_batches(const RunSetup& setup, const RunData& data, const FitProgress& progress) {
  return {.batch_size = data.train->batch_size(),
          .accumulation = setup.options.accumulate_grad_batches.at(0),
          .world_size = setup.environment->world_size(),
          .steps = estimated_steps(setup, data, progress)};
}

void set_up_optimizers(RunSetup& setup, const RunData& data, const FitProgress& progress) {
  auto own = setup.module->configure_optimizers();
  if (setup.deepspeed) own = completed_by_deepspeed(setup, data, progress, std::move(own));
  auto all = numbered(std::move(own));
  check_number(setup, all.size());
  check_each(all);
  setup.strategy->set_precision(*setup.precision);
  // Parameters that no optimizer trains must be the same on all ranks, too.
  if (!all.empty() && all.front().module) setup.strategy->setup_evaluation(*setup.module);
  if (all.empty()) set_up_module(setup, setup.module);
  for (auto& one : all) {
    RunOptimizer made{.module = one.module ? one.module : setup.module, .lr_scheduler = one.lr_scheduler};
    set_up_module(setup, made.module);
    made.optimizer = setup.strategy->setup_optimizer(*made.module, one.optimizer);
    begin_with(*setup.precision, *made.optimizer);
    check_closure(setup, *made.optimizer);
    if (made.lr_scheduler) set_up_scheduler(setup, made);
    setup.optimizers.push_back(std::move(made));
  }
}

}  // namespace lockstep::detail
