// DataModule: where the data come from, how they are got ready, and the loaders of each stage, in one place.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <lockstep/base/export.h>
#include <lockstep/data/loader.h>
#include <lockstep/state/state_tree.h>
#include <lockstep/train/batch_transfer.h>
#include <lockstep/train/train_context.h>

namespace lockstep {

class Profiler;

/// What the loaders of a DataModule are for.
enum class DataPart {
  kTrain,       ///< for fit
  kValidation,  ///< for validation
  kTest,        ///< for tests
  kPredict      ///< for prediction
};

/// The part of DataModule that does not depend on the type of the batch; the Trainer sees only this.
class LOCKSTEP_API AnyDataModule : public AnyBatchTransfer {
 public:
  ~AnyDataModule() override;

  /// Fetch and unpack the data here. Called on one rank of each node, or of the job where
  /// prepare_data_per_node() is false, while the others wait; so keep nothing in members.
  virtual void prepare_data() {}
  /// Whether one rank of each node prepares the data, and not only rank 0 of the job.
  virtual bool prepare_data_per_node() const { return true; }

  /// On every rank, before the loaders of that stage are asked for; kFit needs train and validation.
  virtual void setup(Stage /*stage*/) {}
  /// On every rank, after the stage.
  virtual void teardown(Stage /*stage*/) {}
  /// The stage is about to fail with `error`. Not Collective: other ranks may be well.
  virtual void on_exception(const std::exception& /*error*/) {}

  /// The epoch from which on the loaders are used that are being asked for: 0, and with
  /// reload_dataloaders_every_n_epochs a later one. A run that goes on asks for those of the same epoch
  /// again.
  std::int64_t current_epoch() const { return current_epoch_; }
  /// For the Trainer.
  void set_current_epoch(std::int64_t epoch) { current_epoch_ = epoch; }

  /// What it must remember to go on in another process, this rank's part of it. Not Collective.
  virtual StateTree state() const { return {}; }
  /// Goes on from `state`, which state() gave; after setup(), before the first batch. Not Collective.
  /// @throws CheckpointError when it does not fit
  virtual void load_state(const StateTree& /*state*/) {}

  /// Gives the loaders asked for from now on batches of `samples`, which is how ls::Tuner tries sizes; false
  /// where the data have no such number.
  virtual bool set_batch_size(std::int64_t /*samples*/) { return false; }

  // Bridge to the typed loaders of DataModule<Batch>; empty where there is none.
  /// The loaders of a part, without the types of their batches.
  virtual LoaderList any_loaders(DataPart part) = 0;

 private:
  std::int64_t current_epoch_ = 0;
};

namespace detail {

/// The data of a run: loaders, or the module that has them.
struct DataSource {
  std::shared_ptr<AnyLoader> train = {};
  LoaderList evaluation = {};                  ///< of the stage; in fit, of its validation
  std::shared_ptr<AnyDataModule> module = {};  ///< gives them after its setup()
};

/// What a stage begins with: prepare_data() where it is due, the barrier, setup(); measured by `profiler`,
/// which may be null. Collective.
LOCKSTEP_API void begin_stage(AnyDataModule& data, Stage stage, int local_rank, int global_rank,
                              const std::function<void()>& barrier, Profiler* profiler = nullptr);

}  // namespace detail

/// Derive your data from DataModule<Batch>, override what you need, and hand it to a Trainer in the place of
/// loaders: Lightning's LightningDataModule.
template <class Batch>
class DataModule : public BatchTransfer<Batch, AnyDataModule> {
 public:
  /// What loaders give.
  using BatchType = Batch;

  /// None: that stage has no data.
  virtual std::optional<Loader<Batch>> train_dataloader() { return std::nullopt; }
  /// The loader for validation; none: there is none.
  virtual std::optional<Loader<Batch>> val_dataloader() { return std::nullopt; }
  /// The loader for tests; none: there is none.
  virtual std::optional<Loader<Batch>> test_dataloader() { return std::nullopt; }
  /// The loader for prediction; none: there is none.
  virtual std::optional<Loader<Batch>> predict_dataloader() { return std::nullopt; }

  /// Several loaders of a stage: override these instead.
  virtual Loaders<Batch> val_dataloaders() { return val_dataloader(); }
  /// The loaders for tests, where there are several.
  virtual Loaders<Batch> test_dataloaders() { return test_dataloader(); }
  /// The loaders for prediction, where there are several.
  virtual Loaders<Batch> predict_dataloaders() { return predict_dataloader(); }

  LoaderList any_loaders(DataPart part) final {
    switch (part) {
      case DataPart::kTrain:
        return Loaders<Batch>(train_dataloader()).any();
      case DataPart::kValidation:
        return val_dataloaders().any();
      case DataPart::kTest:
        return test_dataloaders().any();
      case DataPart::kPredict:
        break;
    }
    return predict_dataloaders().any();
  }
};

/// The data sets of datasets_module(); a null one has no loader.
template <class Batch>
struct DataModuleDatasets {
  DatasetPtr<Batch> train = nullptr;    ///< for fit
  DatasetPtr<Batch> val = nullptr;      ///< for validation
  DatasetPtr<Batch> test = nullptr;     ///< for tests
  DatasetPtr<Batch> predict = nullptr;  ///< for prediction
};

/// A DataModule of data sets that are there already; only training shuffles: Lightning's from_datasets().
///
///     auto data = ls::datasets_module<ls::Example>({.train = train, .val = val}, {.batch_size = 32});
///
/// `options.shuffle` has no effect.
template <class Batch>
std::shared_ptr<DataModule<Batch>> datasets_module(DataModuleDatasets<Batch> datasets,
                                                   const LoaderOptions& options = {}) {
  using OptionalLoader = std::optional<Loader<Batch>>;
  class Module final : public DataModule<Batch> {
   public:
    Module(DataModuleDatasets<Batch> given, const LoaderOptions& with)
        : datasets_(std::move(given)), options_(with) {}
    OptionalLoader train_dataloader() override { return loader_of(datasets_.train, /*shuffle=*/true); }
    OptionalLoader val_dataloader() override { return loader_of(datasets_.val); }
    OptionalLoader test_dataloader() override { return loader_of(datasets_.test); }
    OptionalLoader predict_dataloader() override { return loader_of(datasets_.predict); }
    bool set_batch_size(std::int64_t samples) override {
      options_.batch_size = samples;
      return true;
    }

   private:
    OptionalLoader loader_of(const DatasetPtr<Batch>& dataset, bool shuffle = false) const {
      if (!dataset) return std::nullopt;
      LoaderOptions with = options_;
      with.shuffle = shuffle;
      return Loader<Batch>(dataset, with);
    }
    DataModuleDatasets<Batch> datasets_;
    LoaderOptions options_;
  };
  return std::make_shared<Module>(std::move(datasets), options);
}

}  // namespace lockstep
