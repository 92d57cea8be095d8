// reload_dataloaders_every_n_epochs: when a data module is asked again, and where a run that goes on stands.
#include <gmock/gmock.h>
#include <lockstep/lockstep.h>

#include "support/expect_error.h"
#include "train/golden_loops.h"
#include "train/slope.h"

namespace lockstep {
namespace {

using testing::SlopeTest;
using Rows = std::vector<std::string>;

std::string row(const std::string& what, std::int64_t epoch) { return what + " " + std::to_string(epoch); }

// Data that grow with the epoch from which on they are used.
struct Growing : DataModule<Example> {
  explicit Growing(Rows& rows_) : rows(rows_) {}
  void prepare_data() override { rows.push_back(row("prepare_data", current_epoch())); }
  void setup(Stage stage) override { rows.push_back(row("setup " + std::string(stage_name(stage)), 0)); }
  void teardown(Stage stage) override { rows.push_back("teardown " + std::string(stage_name(stage))); }
  std::optional<Loader<Example>> train_dataloader() override { return loader_of("train_dataloader"); }
  std::optional<Loader<Example>> val_dataloader() override { return loader_of("val_dataloader"); }
  std::optional<Loader<Example>> test_dataloader() override { return loader_of("test_dataloader"); }
  std::optional<Loader<Example>> predict_dataloader() override { return loader_of("predict_dataloader"); }
  std::optional<Loader<Example>> loader_of(const char* what) {
    rows.push_back(row(what, current_epoch()));
    const auto value = static_cast<double>(current_epoch() + 1);
    const auto count = grows ? 2 + current_epoch() : 2;
    return loader(tensor_dataset(torch::full({count, 1}, value)), {.batch_size = 1});
  }
  Rows& rows;
  bool grows = false;
};

struct WatchedImpl : testing::SlopeImpl {
  explicit WatchedImpl(Rows& rows_) : rows(rows_) {}
  void on_fit_start(TrainContext&) override { rows.push_back(row("on_fit_start", 0)); }
  void on_train_start(TrainContext& context) override {
    rows.push_back(row("on_train_start", context.current_epoch()));
  }
  void on_train_epoch_start(TrainContext& context) override {
    rows.push_back(row("on_train_epoch_start", context.current_epoch()));
    batches_of_epochs.push_back(context.num_training_batches());
  }
  void on_validation_model_eval(TrainContext& context) override {
    rows.push_back(row("on_validation_model_eval", context.current_epoch()));
    Module::on_validation_model_eval(context);
  }
  void validation_step(const Example& batch, StepContext& step) override {
    step.log("val_mean", batch.data.mean());
  }
  Optimizers configure_optimizers() override {
    rows.push_back(row("configure_optimizers", 0));
    return SlopeImpl::configure_optimizers();
  }
  Rows& rows;
  std::vector<std::int64_t> batches_of_epochs;
};

// What comes behind the first time that both are asked for: Lightning asks for them later than we do.
Rows from_training_on(const Rows& rows) {
  return {std::ranges::find(rows, row("on_train_start", 0)), rows.end()};
}

Rows rows_with_epochs(const nlohmann::json& golden) {
  Rows rows;
  for (const auto& entry : golden) {
    const std::string what = entry[0];
    rows.push_back(what.starts_with("teardown") ? what : row(what, entry[1].get<std::int64_t>()));
  }
  return rows;
}

class Reload : public SlopeTest {
 protected:
  TrainerOptions reloading(int every, std::int64_t epochs) {
    auto chosen = options(epochs);
    chosen.reload_dataloaders_every_n_epochs = every;
    return chosen;
  }
  Rows rows_;
};

TEST_F(Reload, ComesInLightningsEpochs) {
  for (const auto& golden : testing::golden_loops("reload")) {
    SCOPED_TRACE(golden.dump());
    rows_.clear();
    auto chosen = reloading(golden.at("n"), 6);
    chosen.check_val_every_n_epoch = golden.at("check_val_every_n_epoch").get<int>();
    chosen.num_sanity_val_steps = golden.at("num_sanity_val_steps");
    Trainer(chosen).fit(std::make_shared<WatchedImpl>(rows_), std::make_shared<Growing>(rows_));
    EXPECT_EQ(from_training_on(rows_), from_training_on(rows_with_epochs(golden.at("rows"))));
  }
}

TEST_F(Reload, TakesTheNewLengths) {
  const auto data = std::make_shared<Growing>(rows_);
  data->grows = true;
  const auto model = std::make_shared<WatchedImpl>(rows_);
  Trainer trainer(reloading(2, 5));
  trainer.fit(model, data);
  EXPECT_THAT(model->batches_of_epochs, ::testing::ElementsAre(2, 2, 4, 4, 6));
  EXPECT_EQ(trainer.callback_metrics().at("val_mean"), 5);
}

struct SaveAt final : Callback {
  explicit SaveAt(std::filesystem::path folder_) : folder(std::move(folder_)) {}
  void on_train_batch_end(StepContext& step, const TrainOutput&) override {
    if (step.current_epoch() == 3 && step.batch_idx() == 1) step.save_checkpoint(folder);
  }
  std::filesystem::path folder;
};

TEST_F(Reload, ARunThatGoesOnHasTheLoadersOfThatEpoch) {
  auto chosen = reloading(2, 6);
  chosen.callbacks = {std::make_shared<SaveAt>(folder_ / "x.ckpt")};
  const auto data = std::make_shared<Growing>(rows_);
  data->grows = true;
  const auto whole = std::make_shared<WatchedImpl>(rows_);
  Trainer(chosen).fit(whole, data);

  chosen = reloading(2, 6);
  chosen.run.run_dir = folder_ / "resumed";
  rows_.clear();
  const auto resumed = std::make_shared<WatchedImpl>(rows_);
  Trainer trainer(chosen);
  trainer.fit(resumed, data, folder_ / "x.ckpt");
  EXPECT_EQ(resumed->weight.item<float>(), whole->weight.item<float>());
  EXPECT_EQ(trainer.callback_metrics().at("val_mean"), 5);
  EXPECT_THAT(rows_, ::testing::Contains("train_dataloader 2"));
  EXPECT_THAT(rows_, ::testing::Contains("train_dataloader 4"));
}

TEST_F(Reload, OtherStagesCallADataModuleInLightningsOrder) {
  const auto golden = testing::golden_loops("datamodule");
  struct Tested : WatchedImpl {
    using WatchedImpl::WatchedImpl;
    void on_test_model_eval(TrainContext&) override {}
    void on_predict_model_eval(TrainContext&) override {}
  };
  const auto model = std::make_shared<Tested>(rows_);
  const auto data = std::make_shared<Growing>(rows_);
  Trainer trainer(options());
  trainer.validate(model, data);
  EXPECT_EQ(std::exchange(rows_, {}), rows_with_epochs(golden.at("validate")));
  trainer.test(model, data);
  EXPECT_EQ(std::exchange(rows_, {}), rows_with_epochs(golden.at("test")));
  trainer.predict(model, data);
  EXPECT_EQ(std::exchange(rows_, {}), rows_with_epochs(golden.at("predict")));
}

TEST_F(Reload, IsANumberFromZero) {
  test::expect_error<ConfigError>([&] { Trainer trainer(reloading(-1, 1)); },
                                  {"reload_dataloaders_every_n_epochs", "-1"});
}

}  // namespace
}  // namespace lockstep
