// The Tuner, the callbacks that run its searches at the start of fit, and the options of both.
#include <algorithm>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/state/module_state.h>
#include <lockstep/train/tuner.h>
#include <lockstep/train/tuner_options.h>

#include "train/callbacks/named_options.h"
#include "train/data/data_place.h"
#include "train/run_lifecycle.h"
#include "train/tuner/search_scope.h"

namespace lockstep {

void detail::refuse_closures(const RunSetup& setup) {
  for (const auto& one : setup.optimizers) {
    if (!one.optimizer->needs_closure()) continue;
    throw ConfigError("tuner", {.what = "a search with the optimizer " + std::string(one.optimizer->name()),
                                .expected = "one that takes a step from gradients, such as SGD or AdamW",
                                .got = "one that evaluates the loss itself"});
  }
}

void detail::require_training(const RunSetup& setup, const RunData& data, const char* name) {
  if (setup.stage != Stage::kFit || num_training_batches(setup, data) != 0) return;
  const bool is_limited = setup.options.limit_train_batches.is_zero();
  throw ConfigError("tuner", {.what = std::string(name) + " needs batches to train on",
                              .expected = is_limited ? "limit_train_batches above 0" : "data with a batch",
                              .got = is_limited ? setup.options.limit_train_batches.print() : "none"});
}

namespace {

template <class Finder>
void refuse_finder(const TrainerOptions& options, const std::string& name) {
  const auto is_finder = [](const auto& callback) {
    return dynamic_cast<const Finder*>(callback.get()) != nullptr;
  };
  if (std::ranges::none_of(options.callbacks, is_finder)) return;
  throw ConfigError("tuner", {.what = "Trainer is already configured with a `" + name + "` callback",
                              .expected = "one without it",
                              .got = "both",
                              .hint = "Please remove it if you want to use the Tuner."});
}

void check_method(Stage method) {
  if (method != Stage::kSanityCheck) return;
  throw ConfigError("tuner", {.what = "method",
                              .expected = "fit, validate, test or predict",
                              .got = std::string(stage_name(method))});
}

}  // namespace

// Setup and teardown around a search draw random numbers, too, so the generators are restored here.
void Tuner::search(std::shared_ptr<AnyModule> module, detail::DataSource data, Stage stage,
                   std::function<void()> body) {
  auto& state = *trainer_->state_;
  const auto device = state.setup.strategy->root_device();
  const auto random = random_state(device);
  state.search.body = std::move(body);
  try {
    if (stage == Stage::kFit) {
      trainer_->run_fit(std::move(module), std::move(data));
    } else {
      trainer_->run_evaluation(std::move(module), std::move(data), stage);
    }
  } catch (...) {
    state.search.body = nullptr;
    throw;
  }
  state.search.body = nullptr;
  load_random_state(random, device);
}

std::optional<std::int64_t> Tuner::run_scale_batch_size(std::shared_ptr<AnyModule> module,
                                                        std::shared_ptr<AnyDataModule> data,
                                                        const ScaleBatchSizeOptions& options) {
  auto& state = *trainer_->state_;
  check_method(options.method);
  refuse_finder<BatchSizeFinder>(state.setup.options, "BatchSizeFinder");
  std::optional<std::int64_t> found;
  search(std::move(module), {.module = std::move(data)}, options.method,
         [&] { found = detail::find_batch_size(state, options); });
  return found;
}

std::optional<LrFindResult> Tuner::run_lr_find(std::shared_ptr<AnyModule> module, detail::DataSource data,
                                               const LrFindOptions& options) {
  auto& state = *trainer_->state_;
  refuse_finder<LearningRateFinder>(state.setup.options, "LearningRateFinder");
  std::optional<LrFindResult> found;
  search(std::move(module), std::move(data), Stage::kFit,
         [&] { found = detail::find_learning_rate(state, options); });
  return found;
}

namespace {

// Gives access to the state behind a context.
class SearchContext : public TrainContext {
 public:
  explicit SearchContext(const TrainContext& context) : TrainContext(context) {}
  detail::TrainerState& state() const { return *state_; }
};

bool goes_on(const detail::CheckpointSession& checkpoints, const char* what) {
  if (!checkpoints.resume_point) return false;
  log_info("This run goes on from a checkpoint: no search for " + std::string(what) + ".");
  return true;
}

}  // namespace

BatchSizeFinder::BatchSizeFinder(ScaleBatchSizeOptions options) : options_(std::move(options)) {
  if (options_.method == Stage::kFit) return;
  throw ConfigError("tuner", {.what = "BatchSizeFinder",
                              .expected = "method kFit: the callback searches at the start of fit",
                              .got = std::string(stage_name(options_.method)),
                              .hint = "use Tuner::scale_batch_size()"});
}

StateTree BatchSizeFinder::state() const {
  StateTree state;
  if (optimal_batch_size_) state.set("optimal_batch_size", *optimal_batch_size_);
  return state;
}

void BatchSizeFinder::load_state(const StateTree& state) {
  optimal_batch_size_ = state.get<std::int64_t>("optimal_batch_size");
}

void BatchSizeFinder::on_fit_start(TrainContext& context) {
  auto& state = SearchContext(context).state();
  if (!goes_on(state.checkpoints, "the size of batches")) {
    optimal_batch_size_ = find_batch_size(state, options_);
    heed_new_batch_size(state.setup, state.data, state.progress);
    return;
  }
  const auto given = state.data.train->batch_size();
  if (!context.is_global_zero() || !optimal_batch_size_ || *optimal_batch_size_ == given) return;
  log_warning("BatchSizeFinder: the checkpoint's run had found batches of " +
              std::to_string(*optimal_batch_size_) + " samples, and this run's have " +
              std::to_string(given) + ", as the program says; to go on as before, give it the size found");
}

LearningRateFinder::LearningRateFinder(LrFindOptions options) : options_(std::move(options)) {}

void LearningRateFinder::on_fit_start(TrainContext& context) {
  auto& state = SearchContext(context).state();
  if (!goes_on(state.checkpoints, "a learning rate")) optimal_lr_ = find_learning_rate(state, options_);
}

std::span<const OptionName<BatchSizeMode>> option_names(BatchSizeMode) {
  static constexpr OptionName<BatchSizeMode> kNames[] = {{"power", BatchSizeMode::kPower},
                                                         {"binsearch", BatchSizeMode::kBinsearch}};
  return kNames;
}

std::span<const OptionName<LrFindMode>> option_names(LrFindMode) {
  static constexpr OptionName<LrFindMode> kNames[] = {{"exponential", LrFindMode::kExponential},
                                                      {"linear", LrFindMode::kLinear}};
  return kNames;
}

void describe(OptionVisitor& v, ScaleBatchSizeOptions& o) {
  v.field("mode", o.mode, "Double the size until it does not fit (power), or search on between (binsearch)");
  v.field("steps_per_trial", o.steps_per_trial, "Steps with each size", at_least(1));
  v.field("init_val", o.init_val, "Size to begin with", at_least(1));
  v.field("max_trials", o.max_trials, "Try at most so many sizes", at_least(0));
  v.field("margin", o.margin, "Fraction by which binsearch lowers its result", between(0, 0.9999));
  v.field("max_val", o.max_val, "Try no larger size", at_least(1));
}

void describe(OptionVisitor& v, LrFindOptions& o) {
  v.field("min_lr", o.min_lr, "First learning rate", more_than(0));
  v.field("max_lr", o.max_lr, "Last learning rate", more_than(0));
  v.field("num_training", o.num_training, "Steps from the first to the last", at_least(1));
  v.field("mode", o.mode, "Raise the rate by equal factors (exponential) or differences (linear)");
  v.field("early_stop_threshold", o.early_stop_threshold,
          "Stop when the loss is worse than the best by this factor; null: never", more_than(0));
}

// Lightning's names, in the order of its LearningRateFinder.
void describe(OptionVisitor& v, RateFinderOptions& o) {
  auto& search = o.search;
  v.field("min_lr", search.min_lr, "First learning rate", more_than(0));
  v.field("max_lr", search.max_lr, "Last learning rate", more_than(0));
  v.field("num_training_steps", search.num_training, "Steps from the first to the last", at_least(1));
  v.field("mode", search.mode, "Raise the rate by equal factors (exponential) or differences (linear)");
  v.field("early_stop_threshold", search.early_stop_threshold,
          "Stop when the loss is worse than the best by this factor; null: never", more_than(0));
  v.field("update_attr", search.update_attr, "Train with the rate that is suggested");
}

}  // namespace lockstep
