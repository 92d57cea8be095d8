// Trainer: runs the loops of fit, validate, test and predict over a Module, under any strategy.
#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <lockstep/fabric/module_pointer.h>
#include <lockstep/train/callbacks/model_checkpoint.h>
#include <lockstep/train/data_module.h>
#include <lockstep/train/module.h>
#include <lockstep/train/trainer_options.h>

namespace lockstep {

namespace detail {

/// The AnyModule behind a TORCH_MODULE holder or a shared_ptr, checked to take `Batch`.
template <class Batch, class Model>
std::shared_ptr<AnyModule> module_for(const Model& model) {
  const auto pointer = module_pointer(model);
  using Impl = typename decltype(pointer)::element_type;
  static_assert(std::is_base_of_v<Module<Batch>, Impl>,
                "the model is not a lockstep::Module of the type of batch that the loader gives");
  return pointer;
}

/// The type of batch that a model takes.
template <class Batch>
std::type_identity<Batch> batch_type(const Module<Batch>&);
template <class Model>
using BatchOf = typename decltype(batch_type(*module_pointer(std::declval<const Model&>())))::type;

}  // namespace detail

/// Usage: construct on every rank with equal options, then call fit, validate, test, predict in any number;
/// each of them is Collective, blocks until done and leaves the module with every rank's weights
/// equal. Where several ranks are asked for and nobody has started them (no ls::run, no launcher),
/// the constructor starts them by running this program anew, once per rank, and this process
/// becomes their supervisor: it exits with their status.
///
/// In the README's words: `ls::Trainer trainer({.max_epochs = 3}); trainer.fit(model, train, val);`
class LOCKSTEP_API Trainer {
 public:
  /// @throws ConfigError naming the option, its value and what is accepted
  explicit Trainer(TrainerOptions options = {});
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  /// Trains `model`; validates on `val`, one loader or a list of them, as check_val_every_n_epoch says. With
  /// `ckpt_path` (as RunOptions') it goes on where that checkpoint was taken. Collective.
  /// @throws Error of any kind; hooks' and steps' own exceptions pass through
  template <class Model, class Batch>
  void fit(const Model& model, const Loader<Batch>& train,
           const std::type_identity_t<Loaders<Batch>>& val = {}, const std::string& ckpt_path = {}) {
    want_checkpoint(ckpt_path);
    run_fit(detail::module_for<Batch>(model), {.train = train, .evaluation = val.any()});
  }
  /// The same with the loaders of a DataModule, which is set up before and torn down after.
  template <class Model, std::derived_from<AnyDataModule> Data>
  void fit(const Model& model, const std::shared_ptr<Data>& data, const std::string& ckpt_path = {}) {
    want_checkpoint(ckpt_path);
    run_fit(detail::module_for<typename Data::BatchType>(model), {.module = data});
  }

  /// Runs validation_step over `loaders`, one or a list of them, once, each sample on exactly one rank.
  /// Returns what was logged, reduced over the epoch; what was logged in one of several loaders N has the
  /// name NAME/dataloader_idx_N. With `ckpt_path` the weights are that checkpoint's. Collective.
  template <class Model>
  Metrics validate(const Model& model, const Loaders<detail::BatchOf<Model>>& loaders,
                   const std::string& ckpt_path = {}) {
    want_checkpoint(ckpt_path);
    return run_evaluation(detail::module_pointer(model), {.evaluation = loaders.any()}, Stage::kValidate);
  }
  /// The same for a data module that is shared.
  template <class Model, std::derived_from<AnyDataModule> Data>
  Metrics validate(const Model& model, const std::shared_ptr<Data>& data, const std::string& ckpt_path = {}) {
    want_checkpoint(ckpt_path);
    return run_evaluation(detail::module_for<typename Data::BatchType>(model), {.module = data},
                          Stage::kValidate);
  }

  /// As validate, with test_step.
  template <class Model>
  Metrics test(const Model& model, const Loaders<detail::BatchOf<Model>>& loaders,
               const std::string& ckpt_path = {}) {
    want_checkpoint(ckpt_path);
    return run_evaluation(detail::module_pointer(model), {.evaluation = loaders.any()}, Stage::kTest);
  }
  /// The same for a data module that is shared.
  template <class Model, std::derived_from<AnyDataModule> Data>
  Metrics test(const Model& model, const std::shared_ptr<Data>& data, const std::string& ckpt_path = {}) {
    want_checkpoint(ckpt_path);
    return run_evaluation(detail::module_for<typename Data::BatchType>(model), {.module = data},
                          Stage::kTest);
  }

  /// Runs predict_step over `loader` once, each sample on exactly one rank, and returns what it gave for this
  /// rank's batches, on the CPU; nothing with `return_predictions` false, where a callback takes them. With
  /// `ckpt_path` the weights are that checkpoint's. Collective.
  template <class Model, class Batch>
  std::vector<at::Tensor> predict(const Model& model, const Loader<Batch>& loader,
                                  const std::string& ckpt_path = {}, bool return_predictions = true) {
    want_checkpoint(ckpt_path);
    return flat(
        run_prediction(detail::module_for<Batch>(model), {.evaluation = {loader}}, return_predictions));
  }
  /// The same over several loaders: what it gave, by loader and batch.
  template <class Model>
  std::vector<std::vector<at::Tensor>> predict(const Model& model,
                                               const Loaders<detail::BatchOf<Model>>& loaders,
                                               const std::string& ckpt_path = {},
                                               bool return_predictions = true) {
    want_checkpoint(ckpt_path);
    return run_prediction(detail::module_pointer(model), {.evaluation = loaders.any()}, return_predictions);
  }
  /// Several loaders of a data module come one after the other.
  template <class Model, std::derived_from<AnyDataModule> Data>
  std::vector<at::Tensor> predict(const Model& model, const std::shared_ptr<Data>& data,
                                  const std::string& ckpt_path = {}, bool return_predictions = true) {
    want_checkpoint(ckpt_path);
    return flat(run_prediction(detail::module_for<typename Data::BatchType>(model), {.module = data},
                               return_predictions));
  }

  /// Writes the run as fit left it: another one goes on from there, with a larger max_epochs. With
  /// `weights_only` it has the model and the configuration, but nothing to go on from. Collective, blocking.
  /// @throws ConfigError before fit; IoError
  void save_checkpoint(const std::filesystem::path& folder, bool weights_only = false);

  /// What the last validate or test logged, for each of its loaders: the values of that loader, under the
  /// names that validate gives them, and those that belong to no loader. What Lightning's validate returns.
  const std::vector<Metrics>& results() const;
  /// The latest value of everything that was logged.
  const Metrics& callback_metrics() const;
  /// The first ModelCheckpoint of the callbacks; null where there is none.
  const ModelCheckpoint* checkpoint_callback() const;
  /// Optimizer steps so far.
  std::int64_t global_step() const;
  /// Epochs that are done.
  std::int64_t current_epoch() const;
  /// Whether this is rank 0.
  bool is_global_zero() const;
  /// This rank, from 0.
  int global_rank() const;
  /// Ranks of the job.
  int world_size() const;
  /// The folder of this run; empty when nothing is written.
  const std::filesystem::path& run_dir() const;
  /// Prints a line on rank 0.
  void print(std::string_view text) const;

 private:
  friend class Tuner;

  void want_checkpoint(const std::string& ckpt_path);
  void run_fit(std::shared_ptr<AnyModule> module, detail::DataSource data);
  Metrics run_evaluation(std::shared_ptr<AnyModule> module, detail::DataSource data, Stage stage);
  // By loader.
  std::vector<std::vector<at::Tensor>> run_prediction(std::shared_ptr<AnyModule> module,
                                                      detail::DataSource data, bool return_predictions);
  static std::vector<at::Tensor> flat(const std::vector<std::vector<at::Tensor>>& by_loader);

  std::unique_ptr<detail::TrainerState> state_;
};

}  // namespace lockstep
