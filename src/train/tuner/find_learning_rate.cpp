// The search for a learning rate: raises it with every optimizer step and records the loss.
#include <cmath>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/train/tuner_options.h>

#include "train/loops/fit_loop.h"
#include "train/loops/trainer_state.h"
#include "train/tuner/search_scope.h"

namespace lockstep::detail {
namespace {

// Raises the learning rate with every optimizer step and records the loss: the mean over ranks, so that all
// ranks see the same curve and stop together.
class LrSweep final : public Callback {
 public:
  LrSweep(const RunSetup& setup, StopState& stop, const LrFindOptions& options)
      : setup_(setup), stop_(stop), options_(options), result_{.mode = options.mode} {}

  void on_train_batch_start(StepContext& step) override;
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override;

  const LrFindResult& result() const { return result_; }

 private:
  double lr_of(std::int64_t step) const;
  void add(double loss);
  bool diverges(double smoothed) const;

  const RunSetup& setup_;
  StopState& stop_;
  const LrFindOptions& options_;
  LrFindResult result_;
  std::int64_t steps_ = 0;  // of the optimizer
  double mean_ = 0;         // of the losses so far, the older the less
  double best_ = 0;
};

// As in Lightning the second of the equidistant rates is left out.
double LrSweep::lr_of(std::int64_t step) const {
  const double share =
      step == 0 ? 0 : static_cast<double>(step + 1) / static_cast<double>(options_.num_training);
  if (options_.mode == LrFindMode::kLinear)
    return options_.min_lr + share * (options_.max_lr - options_.min_lr);
  return options_.min_lr * std::pow(options_.max_lr / options_.min_lr, share);
}

void LrSweep::on_train_batch_start(StepContext& step) {
  for (auto& group : step.optimizer().groups()) group.lr = group.initial_lr = lr_of(std::ssize(result_.lr));
}

void LrSweep::on_train_batch_end(StepContext& step, const TrainOutput& output) {
  const auto before = std::exchange(steps_, step.global_step());
  if (before == steps_) return;  // within a window of accumulated gradients
  result_.lr.push_back(lr_of(std::ssize(result_.lr)));
  add(setup_.mean_over_ranks(output.loss.value()));
}

// Lightning's threshold * best, except for negative losses, for which that would be below the best.
bool LrSweep::diverges(double smoothed) const {
  const auto& threshold = options_.early_stop_threshold;
  return threshold && smoothed > best_ + (*threshold - 1) * std::abs(best_);
}

// As in Lightning the power in the divisor is one step ahead.
void LrSweep::add(double loss) {
  constexpr double kBeta = 0.98;
  const auto steps = static_cast<double>(result_.lr.size());
  mean_ = kBeta * mean_ + (1 - kBeta) * loss;
  const double smoothed = mean_ / (1 - std::pow(kBeta, steps + 1));
  if (steps > 1 && diverges(smoothed)) stop_.requested = stop_.agreed = true;
  if (steps == 1 || smoothed < best_) best_ = smoothed;
  result_.loss.push_back(smoothed);
}

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

// In manual optimisation the module uses its schedule itself, but each step begins with the sweep's rate.
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

// Schedules begin with the rates of the groups, so they are made again.
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
