// The search for the largest batch size that fits: trial runs in which the ranks vote.
#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include <c10/util/Exception.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/torch.h>

#include "train/data/run_data.h"
#include "train/loops/evaluation_loop.h"
#include "train/loops/fit_loop.h"
#include "train/tuner/search_scope.h"
#include "train/tuner/trial_votes.h"

namespace lockstep::detail {

void vote(const Communicator& communicator, bool out_of_memory) {
  if (communicator.size() == 1) return;
  const auto votes = torch::full({1}, out_of_memory ? 1 : 0, torch::kInt);
  communicator.all_reduce(votes, ReduceOp::kMax);
  if (!out_of_memory && votes.item<int>() != 0) throw OutOfMemoryElsewhere();
}

void TrialStrategy::backward(const at::Tensor& loss, std::span<torch::nn::Module* const>,
                             const BackwardOptions& options) {
  strategy_->backward(loss, {}, options);
  vote(communicator(), false);
}

namespace {

// Most allocators report failures only by text; only CUDA's has an exception class.
constexpr std::array<std::string_view, 4> kTexts{
    "out of memory", "DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory",
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"};

}  // namespace

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  const std::string_view text = error.what();
  return std::ranges::any_of(kTexts, [&](auto part) { return text.find(part) != text.npos; });
}

namespace {

class Search {
 public:
  explicit Search(const ScaleBatchSizeOptions& options)
      : options_(options), size_(std::min(options.init_val, options.max_val)) {}

  std::int64_t run(const std::function<TrialOutcome(std::int64_t)>& run_trial) {
    if (options_.max_trials == 0) return size_;
    while (learn(run_trial(size_))) advance();
    if (fits_ == 0) refuse();
    return fits_;
  }

 private:
  // Whether there is a size left to try.
  bool learn(TrialOutcome outcome) {
    if (outcome == TrialOutcome::kOutOfMemory) {
      fails_ = size_;
    } else {
      fits_ = size_;
    }
    if (outcome == TrialOutcome::kHoldsAll) {
      log_info("The batch size " + std::to_string(size_) +
               " is greater or equal than the length of your dataset.");
      return false;
    }
    if (fits_ == options_.max_val) {
      log_info("Reached the maximum batch size limit of " + std::to_string(fits_) + ". Stopping search.");
      return false;
    }
    if (options_.mode == BatchSizeMode::kPower || fits_ == size_) ++trials_;
    return !is_over();
  }

  // The search goes on beyond max_trials until some size fits.
  bool is_over() const {
    if (fits_ == 0) return *fails_ == 1;
    if (trials_ >= options_.max_trials) return true;
    if (!fails_) return false;
    return options_.mode == BatchSizeMode::kPower || *fails_ - fits_ <= 1;
  }

  void advance() {
    const auto tried = size_;
    size_ = fails_ ? (fits_ + *fails_) / 2 : std::min(2 * fits_, options_.max_val);
    log_info("Batch size " + std::to_string(tried) + (fits_ == tried ? " succeeded" : " failed") +
             ", trying batch size " + std::to_string(size_));
  }

  [[noreturn]] static void refuse() {
    throw ConfigError("tuner", {.what = "no batch size fits",
                                .expected = "memory for a batch of one sample",
                                .got = "out of memory with 1",
                                .hint = "the model, or one sample, is too large for this machine"});
  }

  const ScaleBatchSizeOptions& options_;
  std::int64_t size_;
  std::int64_t fits_ = 0;              // the largest that does; 0: none yet
  std::optional<std::int64_t> fails_;  // the smallest that does
  int trials_ = 0;
};

}  // namespace

std::int64_t search_batch_size(const ScaleBatchSizeOptions& options,
                               const std::function<TrialOutcome(std::int64_t)>& run_trial) {
  const auto size = Search(options).run(run_trial);
  if (options.mode == BatchSizeMode::kPower) return size;
  const auto kept = static_cast<double>(size) * (1 - options.margin);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(kept));
}

namespace {

void check(const RunSetup& setup, const RunData& data, const ScaleBatchSizeOptions& options) {
  check_search(setup, data, "scale_batch_size", options);
  if (data.module) return;
  throw ConfigError("tuner", {.what = "The Batch size finder cannot be used with dataloaders passed directly "
                                      "to `.fit()`",
                              .expected = "a DataModule, whose loaders are made anew for each size",
                              .got = "loaders",
                              .hint = "please disable the feature or incorporate the dataloader into your "
                                      "data module"});
}

// Samples that a rank has, or kUnknownLength.
std::int64_t share_of_rank(const RunSetup& setup, const AnyLoader& loader) {
  const auto samples = loader.num_samples();
  const auto ranks = std::int64_t{setup.shard(/*pad=*/true).num_replicas};
  return samples == kUnknownLength ? samples : (samples + ranks - 1) / ranks;
}

// Sets the batch size and opens the loaders again.
class BatchSizeSetter {
 public:
  BatchSizeSetter(const RunSetup& setup, RunData& data, const FitProgress& progress,
                  const ScaleBatchSizeOptions& options)
      : setup_(setup), data_(data), progress_(progress), options_(options) {}

  /// The loaders of the stage.
  LoaderList set(std::int64_t size) {
    if (options_.apply) options_.apply(size);
    // A module that keeps the size itself is told, too: what apply() sets may be what it was made from.
    if (!data_.module->set_batch_size(size) && !options_.apply) refuse_missing();
    auto loaders = reopen();
    check_effect(size, loaders.front()->batch_size());
    return loaders;
  }

 private:
  LoaderList reopen() {
    if (setup_.stage != Stage::kFit) return reopen_evaluation_data(setup_, data_);
    reopen_training_data(setup_, data_, progress_);
    return {data_.train};
  }

  [[noreturn]] static void refuse_missing() {
    throw ConfigError("tuner", {.what = "Field batch_size not found in the data module",
                                .expected = "a data module that overrides set_batch_size(), or "
                                            "ScaleBatchSizeOptions::apply",
                                .got = "neither"});
  }

  // Refuses loaders whose batches do not change with the size: every trial would succeed.
  void check_effect(std::int64_t size, std::int64_t got) {
    const auto last = std::exchange(last_, {size, got});
    if (last.first == 0 || last.first == size || last.second != got) return;
    throw ConfigError("tuner", {.what = "the batches of the data module's loaders do not change",
                                .expected = "another number of samples when the size goes from " +
                                            std::to_string(last.first) + " to " + std::to_string(size),
                                .got = std::to_string(got),
                                .hint = "make the loader in train_dataloader(), with the size that is set"});
  }

  const RunSetup& setup_;
  RunData& data_;
  const FitProgress& progress_;
  const ScaleBatchSizeOptions& options_;
  std::pair<std::int64_t, std::int64_t> last_ = {};  // what was set, and what loaders made of it
};

class BatchSizeTrials {
 public:
  BatchSizeTrials(TrainerState& state, const ScaleBatchSizeOptions& options, BatchSizeSetter& setter)
      : state_(state), setter_(setter), scope_(state, {}) {
    auto& chosen = state.setup.options;
    chosen.limit_train_batches = 1.0;
    chosen.max_steps = options.steps_per_trial;
    for (auto* limit : {&chosen.limit_val_batches, &chosen.limit_test_batches, &chosen.limit_predict_batches})
      *limit = options.steps_per_trial;
    if (state.setup.communicator().size() == 1) return;
    state.setup.strategy = std::make_shared<TrialStrategy>(state.setup.strategy);
    state.setup.before_exchange = [&setup = state.setup] { vote(setup.communicator(), false); };
  }

  TrialOutcome run(std::int64_t size) {
    scope_.rewind();
    const auto loaders = setter_.set(size);
    if (!fits(loaders)) return TrialOutcome::kOutOfMemory;
    return size >= share_of_rank(state_.setup, *loaders.front()) ? TrialOutcome::kHoldsAll
                                                                 : TrialOutcome::kFits;
  }

  void finish() {
    scope_.rewind();
    if (state_.setup.stage == Stage::kFit) scope_.renew_strategy();
  }

 private:
  bool fits(const LoaderList& loaders) {
    try {
      run_loop(loaders);
      vote(state_.setup.communicator(), false);
      return true;
    } catch (const OutOfMemoryElsewhere&) {
      return false;
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
    }
    vote(state_.setup.communicator(), true);
    return false;
  }

  void run_loop(const LoaderList& loaders) {
    if (state_.setup.stage == Stage::kFit) return FitLoop(state_).run([] {});
    EvaluationProgress progress;
    run_evaluation_loop(state_, loaders, state_.setup.stage,
                        evaluation_limits(state_.setup, loaders, state_.setup.stage), progress);
  }

  TrainerState& state_;
  BatchSizeSetter& setter_;
  SearchScope scope_;
};

}  // namespace

std::optional<std::int64_t> find_batch_size(TrainerState& state, const ScaleBatchSizeOptions& options) {
  check(state.setup, state.data, options);
  if (state.setup.options.fast_dev_run) {
    log_warning("Skipping batch size scaler since `fast_dev_run` is enabled.");
    return std::nullopt;
  }
  BatchSizeSetter setter(state.setup, state.data, state.progress, options);
  std::int64_t size = 0;
  {
    BatchSizeTrials trials(state, options, setter);
    size = search_batch_size(options, [&](std::int64_t candidate) { return trials.run(candidate); });
    trials.finish();
  }
  setter.set(size);
  state.search.found["batch_size"] = size;
  log_info("Finished batch size finder, will continue with full run using batch size " +
           std::to_string(size));
  return size;
}

}  // namespace lockstep::detail
