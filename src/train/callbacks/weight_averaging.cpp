#include <lockstep/train/callbacks/weight_averaging.h>

#include <algorithm>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/scheduler_options.h>
#include <lockstep/state/module_state.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/torch.h>
#include <lockstep/train/module.h>
#include <lockstep/train/trainer_options.h>

#include "train/callbacks/averaged_weights.h"
#include "train/callbacks/named_options.h"
#include "train/callbacks/refuse.h"

namespace lockstep {
namespace {

constexpr const char* kModel = "model";
constexpr const char* kCurrent = "current_model_state";
constexpr const char* kAveraging = "averaging_state";

void require(bool is_usable, const char* option, std::string expected, std::string got) {
  if (is_usable) return;
  throw ConfigError("train", {.what = std::string("EMAWeightAveraging: ") + option,
                              .expected = std::move(expected),
                              .got = std::move(got)});
}

WeightAveragingOptions checked(const EMAWeightAveragingOptions& options) {
  require(options.update_every_n_steps >= 0, "update_every_n_steps", ">= 0",
          std::to_string(options.update_every_n_steps));
  return {.use_buffers = options.use_buffers, .multi_avg_fn = get_ema_multi_avg_fn(options.decay)};
}

StateTree branch(const StateTree& tree, const std::string& name) {
  return tree.contains(name) ? tree.get<StateTree>(name) : StateTree();
}

}  // namespace

MultiAverageFunction get_swa_multi_avg_fn() {
  return [](at::TensorList averages, at::TensorList weights, std::int64_t num_averaged) {
    at::_foreach_lerp_(averages, weights, 1.0 / static_cast<double>(num_averaged + 1));
  };
}

MultiAverageFunction get_ema_multi_avg_fn(double decay) {
  require(decay >= 0 && decay <= 1, "decay", "a number in [0, 1]", std::to_string(decay));
  return [decay](at::TensorList averages, at::TensorList weights, std::int64_t) {
    at::_foreach_lerp_(averages, weights, 1 - decay);
  };
}

WeightAveraging::WeightAveraging(WeightAveragingOptions options) : options_(std::move(options)) {
  if (!options_.multi_avg_fn) options_.multi_avg_fn = get_swa_multi_avg_fn();
}

WeightAveraging::~WeightAveraging() = default;

bool WeightAveraging::should_update(std::optional<std::int64_t> step_idx, std::optional<std::int64_t>) const {
  return step_idx.has_value();
}

std::int64_t WeightAveraging::num_averaged() const { return weights_ ? weights_->num_averaged() : 0; }

// A checkpoint that is taken within a validation contains the averages as each rank's buffers.
StateTree WeightAveraging::state() const {
  StateTree state;
  if (weights_) state.set("average_buffers", weights_->average_buffers());
  if (weights_ && weights_->is_swapped()) state.set("current_buffers", weights_->current_buffers());
  return state;
}

void WeightAveraging::load_state(const StateTree& state) { loaded_buffers_ = state; }

void WeightAveraging::setup(TrainContext& context) {
  if (context.stage() != Stage::kFit) return;
  detail::refuse_sharded("WeightAveraging", context);
  weights_ = nullptr;
  loaded_buffers_ = {};
  latest_update_step_ = steps_seen_ = 0;
  latest_update_epoch_ = -1;
}

void WeightAveraging::update(const TrainContext& context) {
  if (!weights_) weights_ = std::make_unique<detail::AveragedWeights>(context.module(), options_.use_buffers);
  weights_->update(options_.multi_avg_fn);
}

void WeightAveraging::on_train_start(TrainContext& context) { steps_seen_ = context.global_step(); }

// A batch of manual optimisation may take several steps: weights are averaged where any of them is due.
void WeightAveraging::on_train_batch_end(StepContext& step, const TrainOutput&) {
  auto next = std::max(latest_update_step_, std::exchange(steps_seen_, step.global_step()));
  while (next < step.global_step() && !should_update(next, std::nullopt)) ++next;
  if (next >= step.global_step()) return;
  update(step);
  latest_update_step_ = step.global_step();
}

void WeightAveraging::on_train_epoch_end(TrainContext& context) {
  const auto epoch = context.current_epoch();
  if (epoch <= latest_update_epoch_ || !should_update(std::nullopt, epoch)) return;
  update(context);
  latest_update_epoch_ = epoch;
}

void WeightAveraging::hold_averages(const TrainContext& context, bool wanted) {
  if (context.stage() != Stage::kFit || !weights_) return;
  weights_->set_buffers(std::exchange(loaded_buffers_, {}));
  if (weights_->is_swapped() == wanted) return;
  if (wanted) weights_->prune(context);
  weights_->swap();
}

void WeightAveraging::on_train_end(TrainContext& context) { hold_averages(context, true); }
void WeightAveraging::on_validation_epoch_start(TrainContext& context) { hold_averages(context, true); }
// A run that is resumed within a validation does not begin it again.
void WeightAveraging::on_validation_batch_start(StepContext& step) { hold_averages(step, true); }
void WeightAveraging::on_validation_epoch_end(TrainContext& context) { hold_averages(context, false); }

void WeightAveraging::on_save_checkpoint(TrainContext& context, StateTree& shared) {
  if (!weights_) return;
  weights_->prune(context);
  shared.set(kModel, weights_->averages());
  if (!shared.contains("loops")) return;  // nothing goes on from weights alone
  StateTree averaging;
  averaging.set("n_averaged", weights_->num_averaged());
  averaging.set("latest_update_step", latest_update_step_);
  averaging.set("latest_update_epoch", latest_update_epoch_);
  shared.set(kCurrent, weights_->weights());
  shared.set(kAveraging, std::move(averaging));
}

void WeightAveraging::on_load_checkpoint(TrainContext& context, const StateTree& shared) {
  const auto own = std::exchange(loaded_buffers_, {});
  if (!shared.contains(kCurrent)) {
    if (context.is_global_zero() && context.global_step() > 0)
      log_warning("the checkpoint has no averages of weights: they begin anew");
    return;
  }
  const auto& averaging = shared.get<StateTree>(kAveraging);
  load_module_state(context.module(), shared.get<StateTree>(kCurrent));
  weights_ = std::make_unique<detail::AveragedWeights>(context.module(), options_.use_buffers);
  weights_->load_averages(shared.get<StateTree>(kModel), branch(own, "average_buffers"),
                          averaging.get<std::int64_t>("n_averaged"));
  loaded_buffers_ = branch(own, "current_buffers");
  latest_update_step_ = averaging.get<std::int64_t>("latest_update_step");
  latest_update_epoch_ = averaging.get<std::int64_t>("latest_update_epoch");
}

EMAWeightAveraging::EMAWeightAveraging(EMAWeightAveragingOptions options)
    : WeightAveraging(checked(options)), options_(options) {}

bool EMAWeightAveraging::should_update(std::optional<std::int64_t> step_idx,
                                       std::optional<std::int64_t> epoch_idx) const {
  const auto every = options_.update_every_n_steps;
  if (step_idx && every > 0 && *step_idx % every == 0 &&
      *step_idx >= options_.update_starting_at_step.value_or(0))
    return true;
  return epoch_idx && options_.update_starting_at_epoch && *epoch_idx >= *options_.update_starting_at_epoch;
}

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

void describe(OptionVisitor& v, WeightAveragingOptions& o) {
  v.field("use_buffers", o.use_buffers, "Average floating-point buffers, too");
}

void describe(OptionVisitor& v, EMAWeightAveragingOptions& o) {
  v.field("use_buffers", o.use_buffers, "Average floating-point buffers, too");
  v.field("decay", o.decay, "Weight of the average in each update", between(0, 1));
  v.field("update_every_n_steps", o.update_every_n_steps,
          "Optimizer steps between updates; 0: not after steps", at_least(0));
  v.field("update_starting_at_step", o.update_starting_at_step, "First step, from 0, that may update",
          at_least(0));
  v.field("update_starting_at_epoch", o.update_starting_at_epoch,
          "From this epoch on, update at its end, too", at_least(0));
}

void describe(OptionVisitor& v, StochasticWeightAveragingOptions& o) {
  v.field("swa_lrs", o.swa_lrs, "Learning rate, or one for each parameter group; required", more_than(0));
  v.field("swa_epoch_start", o.swa_epoch_start,
          "Epoch from which weights are averaged, from 1, or a fraction of max_epochs (0.8)");
  v.field("annealing_epochs", o.annealing_epochs, "Epochs in which rates go to swa_lrs; 0: at once",
          at_least(0));
  v.field("annealing_strategy", o.annealing_strategy, "Whether they go along a cosine or a line",
          one_of({"cos", "linear"}));
}

}  // namespace lockstep
