// Tuner: finds the largest batch that fits into memory, and a learning rate to begin with; and the callbacks
// with which a fit first finds them.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <lockstep/train/hooks.h>
#include <lockstep/train/trainer.h>
#include <lockstep/train/tuner_options.h>

namespace lockstep {

namespace detail {

/// The data of a search that is given a function from sizes to loaders.
template <class Batch>
class LoadersBySize final : public DataModule<Batch> {
 public:
  using OptionalLoader = std::optional<Loader<Batch>>;

  explicit LoadersBySize(std::function<Loader<Batch>(std::int64_t)> make_loader)
      : make_loader_(std::move(make_loader)) {}
  void setup(Stage stage) override { stage_ = stage; }
  bool set_batch_size(std::int64_t samples) override {
    samples_ = samples;
    return true;
  }
  OptionalLoader train_dataloader() override { return loader_for(Stage::kFit); }
  OptionalLoader val_dataloader() override { return loader_for(Stage::kValidate); }
  OptionalLoader test_dataloader() override { return loader_for(Stage::kTest); }
  OptionalLoader predict_dataloader() override { return loader_for(Stage::kPredict); }

 private:
  OptionalLoader loader_for(Stage stage) const {
    if (stage != stage_) return std::nullopt;
    return make_loader_(samples_);
  }

  std::function<Loader<Batch>(std::int64_t)> make_loader_;
  Stage stage_ = Stage::kFit;
  std::int64_t samples_ = 1;
};

template <class Batch>
Batch batch_type_of(const Loader<Batch>&);

}  // namespace detail

/// Searches with a Trainer's own loops, strategy and precision, before its run. Nothing but what is found
/// remains of a search: weights, optimizer, random numbers, counters, callbacks, loggers and checkpoints are
/// as before, to the bit. In a fast_dev_run there is no search, but a warning. See docs/tuner.md.
///
///     ls::Tuner tuner(trainer);
///     tuner.scale_batch_size(model, data, {.mode = ls::BatchSizeMode::kBinsearch});
///     tuner.lr_find(model, data, {.apply = [&](double lr) { model->lr = lr; }});
///     trainer.fit(model, data);
///
/// All functions are Collective and block until done; every rank gets the same result. Errors are those of
/// Trainer::fit(), after which the Trainer is of no more use.
class LOCKSTEP_API Tuner {
 public:
  /// Borrows `trainer`.
  explicit Tuner(Trainer& trainer) : trainer_(&trainer) {}

  /// The number of samples in the largest batch of a rank that no rank runs out of memory with, which has
  /// been set as options.apply or `data` do it.
  /// @throws ConfigError when there is no way to set it, the loaders do not follow, nothing fits, or the
  ///   Trainer has a BatchSizeFinder
  template <class Model, std::derived_from<AnyDataModule> Data>
  std::optional<std::int64_t> scale_batch_size(const Model& model, const std::shared_ptr<Data>& data,
                                               const ScaleBatchSizeOptions& options = {}) {
    return run_scale_batch_size(detail::module_for<typename Data::BatchType>(model), data, options);
  }
  /// The same with loaders of `make_loader(samples)`: train, or what options.method is about.
  template <class Model, std::invocable<std::int64_t> MakeLoader>
  std::optional<std::int64_t> scale_batch_size(const Model& model, MakeLoader make_loader,
                                               const ScaleBatchSizeOptions& options = {}) {
    using Batch = decltype(detail::batch_type_of(make_loader(std::int64_t{1})));
    return run_scale_batch_size(detail::module_for<Batch>(model),
                                std::make_shared<detail::LoadersBySize<Batch>>(std::move(make_loader)),
                                options);
  }

  /// What becomes of the loss while the learning rate goes from min_lr to max_lr. With update_attr
  /// options.apply gets what LrFindResult::suggestion() says, if it says something.
  /// @throws ConfigError unless there is a single optimizer, or when the Trainer has a LearningRateFinder
  template <class Model, class Batch>
  std::optional<LrFindResult> lr_find(const Model& model, const Loader<Batch>& train,
                                      const LrFindOptions& options = {}) {
    return run_lr_find(detail::module_for<Batch>(model), {.train = train}, options);
  }
  /// The same for a data module that is shared.
  template <class Model, std::derived_from<AnyDataModule> Data>
  std::optional<LrFindResult> lr_find(const Model& model, const std::shared_ptr<Data>& data,
                                      const LrFindOptions& options = {}) {
    return run_lr_find(detail::module_for<typename Data::BatchType>(model), {.module = data}, options);
  }

 private:
  std::optional<std::int64_t> run_scale_batch_size(std::shared_ptr<AnyModule> module,
                                                   std::shared_ptr<AnyDataModule> data,
                                                   const ScaleBatchSizeOptions& options);
  std::optional<LrFindResult> run_lr_find(std::shared_ptr<AnyModule> module, detail::DataSource data,
                                          const LrFindOptions& options);
  void search(std::shared_ptr<AnyModule> module, detail::DataSource data, Stage stage,
              std::function<void()> body);

  Trainer* trainer_;
};

/// Tuner::scale_batch_size() at the start of fit, which goes on with batches of the size found. The data come
/// from a DataModule. A run that goes on from a checkpoint is not searched: its batches are what the program
/// says, with a warning where that is not the size found. Lightning's BatchSizeFinder.
class LOCKSTEP_API BatchSizeFinder final : public Callback {
 public:
  /// @throws ConfigError for another method than kFit
  explicit BatchSizeFinder(ScaleBatchSizeOptions options = {});

  /// Samples of a rank's batch; none before the search.
  std::optional<std::int64_t> optimal_batch_size() const { return optimal_batch_size_; }

  CallbackPlace place() const override { return CallbackPlace::kTuner; }
  StateTree state() const override;
  void load_state(const StateTree& state) override;
  void on_fit_start(TrainContext& context) override;

 private:
  ScaleBatchSizeOptions options_;
  std::optional<std::int64_t> optimal_batch_size_;
};

/// Tuner::lr_find() at the start of fit, whose optimizer and schedule, with update_attr, begin with the rate
/// suggested. A run that goes on from a checkpoint is not searched: it has its rate. Lightning's
/// LearningRateFinder.
class LOCKSTEP_API LearningRateFinder final : public Callback {
 public:
  explicit LearningRateFinder(LrFindOptions options = {});

  /// None before the search.
  const std::optional<LrFindResult>& optimal_lr() const { return optimal_lr_; }

  CallbackPlace place() const override { return CallbackPlace::kTuner; }
  void on_fit_start(TrainContext& context) override;

 private:
  LrFindOptions options_;
  std::optional<LrFindResult> optimal_lr_;
};

}  // namespace lockstep
