#include <lockstep/train/tuner.h>

#include <algorithm>

#include <lockstep/base/error.h>
#include <lockstep/state/random_state.h>
#include <lockstep/train/callbacks/batch_size_finder.h>
#include <lockstep/train/callbacks/learning_rate_finder.h>

#include "train/data/data_place.h"
#include "train/tuner/searches.h"

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

// What runs before and behind a search draws random numbers, too.
void Tuner::search(std::shared_ptr<AnyModule> module, detail::DataSource data, Stage stage,
                   std::function<void()> body) {
  auto& state = *trainer_->state_;
  const auto random = random_state();
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
  load_random_state(random);
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

}  // namespace lockstep
