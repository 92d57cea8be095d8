#include <lockstep/train/callbacks/stochastic_weight_averaging.h>

#include <algorithm>

#include <lockstep/base/log.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/scheduler_options.h>
#include <lockstep/state/module_state.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/train/module.h>
#include <lockstep/train/trainer_options.h>

#include "train/callbacks/averaged_weights.h"
#include "train/callbacks/refuse.h"

namespace lockstep {
namespace {

constexpr const char* kSwa = "stochastic_weight_averaging";

constexpr detail::Refusal refuse_averaging{"StochasticWeightAveraging"};

void check(const StochasticWeightAveragingOptions& options) {
  if (options.swa_lrs.empty())
    refuse_averaging("swa_lrs", "a learning rate, or one for each group", "nothing");
  for (const auto lr : options.swa_lrs)
    if (!(lr > 0)) refuse_averaging("swa_lrs", "> 0", std::to_string(lr));
  const auto* epoch = std::get_if<std::int64_t>(&options.swa_epoch_start);
  if (epoch != nullptr && *epoch < 1)
    refuse_averaging("swa_epoch_start", "an integer >= 1", std::to_string(*epoch));
  const auto* share = std::get_if<double>(&options.swa_epoch_start);
  if (share != nullptr && !(*share >= 0 && *share <= 1))
    refuse_averaging("swa_epoch_start", "a fraction in [0, 1]", std::to_string(*share));
  if (options.annealing_epochs < 0)
    refuse_averaging("annealing_epochs", ">= 0", std::to_string(options.annealing_epochs));
  if (options.annealing_strategy != "cos" && options.annealing_strategy != "linear")
    refuse_averaging("annealing_strategy", "cos or linear", options.annealing_strategy);
}

// The option counts epochs from 1, this from 0.
std::int64_t start_of(const std::variant<std::int64_t, double>& option, std::int64_t max_epochs) {
  const auto* share = std::get_if<double>(&option);
  if (share != nullptr && max_epochs < 0)
    refuse_averaging("swa_epoch_start", "the number of an epoch, since max_epochs has no limit",
                     std::to_string(*share));
  const auto epoch = share != nullptr ? static_cast<std::int64_t>(static_cast<double>(max_epochs) * *share)
                                      : std::get<std::int64_t>(option);
  return std::max<std::int64_t>(epoch - 1, 0);
}

void say_what_is_replaced(const TrainContext& context) {
  const auto& schedule = context.lr_scheduler();
  if (!schedule || !context.is_global_zero()) return;
  log_info("StochasticWeightAveraging: SWALR takes the place of the module's schedule");
  if (schedule->interval != Interval::kEpoch || schedule->frequency != 1)
    log_warning("StochasticWeightAveraging: learning rates change with every epoch from now on");
}

}  // namespace

StochasticWeightAveraging::StochasticWeightAveraging(StochasticWeightAveragingOptions options)
    : options_(std::move(options)) {
  check(options_);
  if (!options_.avg_fn) options_.avg_fn = get_swa_multi_avg_fn();
}

StochasticWeightAveraging::~StochasticWeightAveraging() = default;

std::int64_t StochasticWeightAveraging::num_averaged() const {
  return weights_ ? weights_->num_averaged() : 0;
}

void StochasticWeightAveraging::setup(TrainContext& context) {
  if (context.stage() != Stage::kFit) return;
  detail::refuse_sharded("StochasticWeightAveraging", context);
  if (!context.module().automatic_optimization())
    refuse_averaging("manual optimisation", "automatic optimisation, whose schedule it replaces", "manual");
  swa_start_ = start_of(options_.swa_epoch_start, *context.options().max_epochs);
  weights_ = nullptr;
  latest_update_epoch_ = -1;
}

void StochasticWeightAveraging::replace_schedule(TrainContext& context) const {
  context.set_lr_scheduler({.scheduler = SWALR{.swa_lr = options_.swa_lrs,
                                               .anneal_epochs = options_.annealing_epochs,
                                               .anneal_strategy = options_.annealing_strategy}});
}

void StochasticWeightAveraging::on_train_epoch_start(TrainContext& context) {
  const auto epoch = context.current_epoch();
  if (epoch < swa_start_ || epoch <= latest_update_epoch_) return;
  if (!weights_) {
    say_what_is_replaced(context);
    for (auto& group : context.optimizer().groups()) group.initial_lr = group.lr;
    replace_schedule(context);
    weights_ = std::make_unique<detail::AveragedWeights>(context.module(), /*averages_buffers=*/false);
  }
  weights_->update(options_.avg_fn);
  latest_update_epoch_ = epoch;
}

void StochasticWeightAveraging::on_train_end(TrainContext& context) {
  if (!weights_) return;
  weights_->take_others();
  weights_->prune(context);
  weights_->swap();
  context.update_bn();
}

void StochasticWeightAveraging::on_save_checkpoint(TrainContext& context, StateTree& shared) {
  if (!weights_ || !shared.contains("loops")) return;
  weights_->prune(context);
  StateTree state;
  state.set("n_averaged", weights_->num_averaged());
  state.set("latest_update_epoch", latest_update_epoch_);
  state.set("average_model_state", weights_->averages());
  if (weights_->is_swapped()) state.set("current_model_state", weights_->weights());
  shared.set(kSwa, std::move(state));
}

void StochasticWeightAveraging::on_load_checkpoint(TrainContext& context, const StateTree& shared) {
  if (!shared.contains(kSwa)) return;
  const auto& state = shared.get<StateTree>(kSwa);
  if (state.contains("current_model_state"))
    load_module_state(context.module(), state.get<StateTree>("current_model_state"));
  weights_ = std::make_unique<detail::AveragedWeights>(context.module(), /*averages_buffers=*/false);
  weights_->load_averages(state.get<StateTree>("average_model_state"), {},
                          state.get<std::int64_t>("n_averaged"));
  latest_update_epoch_ = state.get<std::int64_t>("latest_update_epoch");
  replace_schedule(context);
}

}  // namespace lockstep
