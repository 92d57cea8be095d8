#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "train/loops/fit_loop.h"
#include "train/tuner/lr_sweep.h"
#include "train/tuner/search_scope.h"
#include "train/tuner/searches.h"

namespace lockstep::detail {
namespace {

void check(const RunSetup& setup, const RunData& data, const LrFindOptions& options) {
  check_search(setup, data, "lr_find", options);
  if (setup.optimizers.size() != 1) {
    throw ConfigError("tuner", {.what = "`model.configure_optimizers()` returned " +
                                        std::to_string(setup.optimizers.size()) +
                                        ", but learning rate finder only works with single optimizer",
                                .expected = "1"});
  }
  if (options.min_lr < options.max_lr) return;
  throw ConfigError("tuner", {.what = "lr_find: max_lr",
                              .expected = "more than min_lr, " + OptionType<double>::print(options.min_lr),
                              .got = OptionType<double>::print(options.max_lr)});
}

// In manual optimisation the module asks for its schedule, but each step begins with the sweep's rate.
std::unique_ptr<Scheduler> take_scheduler(RunSetup& setup) {
  if (!setup.module->automatic_optimization()) return nullptr;
  return std::exchange(setup.optimizers.front().scheduler, nullptr);
}

LrFindResult sweep(TrainerState& state, const LrFindOptions& options) {
  const auto steps = std::make_shared<LrSweep>(state.setup, state.stop, options);
  SearchScope scope(state, {steps});
  state.setup.options.max_steps = options.num_training;
  state.setup.options.max_epochs = -1;
  auto scheduler = take_scheduler(state.setup);
  auto val_loaders = std::exchange(state.data.val, {});
  FitLoop(state).run([] {});
  if (scheduler) state.setup.optimizers.front().scheduler = std::move(scheduler);
  state.data.val = std::move(val_loaders);
  scope.rewind();
  scope.renew_strategy();
  return steps->result();
}

// Schedules begin with the rates that they find.
void set_learning_rate(RunOptimizer& chosen, double lr) {
  for (auto& group : chosen.optimizer->groups()) group.lr = group.initial_lr = lr;
  if (chosen.scheduler)
    chosen.scheduler = std::make_unique<Scheduler>(chosen.lr_scheduler->scheduler, *chosen.optimizer);
}

}  // namespace

std::optional<LrFindResult> find_learning_rate(TrainerState& state, const LrFindOptions& options) {
  check(state.setup, state.data, options);
  if (state.setup.options.fast_dev_run) {
    log_warning("Skipping learning rate finder since `fast_dev_run` is enabled.");
    return std::nullopt;
  }
  auto result = sweep(state, options);
  if (std::ssize(result.lr) < options.num_training) {
    log_info("LR finder stopped early after " + std::to_string(result.lr.size()) +
             " steps due to diverging loss.");
  }
  const auto lr = result.suggestion();
  if (!lr)
    log_error(
        "Failed to compute suggestion for learning rate because there are not enough points. Increase the "
        "loop iteration limits or the size of your dataset/dataloader.");
  if (!lr || !options.update_attr) return result;
  state.search.found["lr"] = *lr;
  set_learning_rate(state.setup.optimizers.front(), *lr);
  if (options.apply) options.apply(*lr);
  log_info("Learning rate set to " + OptionType<double>::print(*lr));
  return result;
}

}  // namespace lockstep::detail
