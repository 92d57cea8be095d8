// Several loaders of one stage: their order, limits, metrics and predictions, against Lightning's.
#include <gmock/gmock.h>
#include <lockstep/lockstep.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "train/golden_loops.h"
#include "train/memory_logger.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using Place = std::pair<std::int64_t, std::int64_t>;  // loader, batch

struct EvaluatedImpl : Module<Example> {
  EvaluatedImpl() { weight = register_parameter("weight", torch::zeros({1})); }
  torch::Tensor training_step(const Example& batch, StepContext&) override {
    return (weight * batch.data.mean()).sum();
  }
  void validation_step(const Example& batch, StepContext& step) override {
    places.emplace_back(step.dataloader_idx(), step.batch_idx());
    step.log("v", batch.data.mean());
    step.log("both", batch.data.mean(), {.on_step = true, .on_epoch = true});
  }
  void test_step(const Example& batch, StepContext& step) override {
    step.log("t", batch.data.mean() + step.batch_idx());
  }
  torch::Tensor predict_step(const Example& batch, StepContext& step) override {
    return batch.data * 2 + step.batch_idx();
  }
  Optimizers configure_optimizers() override { return {.optimizer = SGD{.lr = 1.0}}; }

  torch::Tensor weight;
  std::vector<Place> places;
};
TORCH_MODULE(Evaluated);

class SeveralLoaders : public ::testing::Test {
 protected:
  TrainerOptions options() {
    TrainerOptions found{.max_epochs = 1, .enable_progress_bar = false};
    found.enable_model_summary = false;
    found.run.run_dir = folder_ / "run";
    return found;
  }
  // Batches of one sample, `value`, each.
  static Loader<Example> batches(std::int64_t count, double value = 1) {
    return loader(tensor_dataset(torch::full({count, 1}, value)), {.batch_size = 1});
  }
  static std::vector<std::vector<double>> numbers(const std::vector<std::vector<at::Tensor>>& predictions) {
    std::vector<std::vector<double>> found;
    for (const auto& of_loader : predictions) {
      found.emplace_back();
      for (const auto& prediction : of_loader) found.back().push_back(prediction.item<double>());
    }
    return found;
  }

  test::TemporaryFolder folder_;
  Evaluated model_;
};

BatchLimit limit_of(const nlohmann::json& value) {
  return value.is_number_integer() ? BatchLimit(value.get<std::int64_t>()) : BatchLimit(value.get<double>());
}

TEST_F(SeveralLoaders, OfFitComeInLightningsOrderEachWithItsLimit) {
  for (const auto& golden : testing::golden_loops("several_loaders_fit")) {
    SCOPED_TRACE(golden.dump());
    auto chosen = options();
    chosen.limit_val_batches = limit_of(golden.at("limit_val_batches"));
    chosen.num_sanity_val_steps = golden.at("num_sanity_val_steps");
    Evaluated model;
    Trainer trainer(chosen);
    trainer.fit(model, batches(1), {batches(2, 1), batches(4, 3)});
    std::vector<Place> expected;
    for (const auto& row : golden.at("rows")) expected.emplace_back(row[1], row[2]);
    EXPECT_EQ(model->places, expected);
    for (const auto& [name, value] : golden.at("metrics").items()) {
      ASSERT_TRUE(trainer.callback_metrics().contains(name)) << name;
      EXPECT_EQ(trainer.callback_metrics().at(name), value.get<double>()) << name;
    }
  }
}

TEST_F(SeveralLoaders, GiveResultsByLoader) {
  struct WithEpochEnd : EvaluatedImpl {
    void on_validation_epoch_end(TrainContext& context) override { context.log("end", 7); }
  };
  Trainer trainer(options());
  const auto all = trainer.validate(std::make_shared<WithEpochEnd>(), {batches(2, 1), batches(4, 3)});
  const auto golden = testing::golden_loops("several_loaders_validate");
  EXPECT_EQ(nlohmann::json(trainer.results()), golden.at("results"));
  for (const auto& [name, value] : golden.at("callback_metrics").items())
    EXPECT_EQ(all.at(name), value.get<double>()) << name;

  trainer.test(model_, {batches(2, 1), batches(1, 5)});
  EXPECT_THAT(trainer.results(), ElementsAre(ElementsAre(Pair("t/dataloader_idx_0", 1.5)),
                                             ElementsAre(Pair("t/dataloader_idx_1", 5))));
  trainer.test(model_, batches(2, 1));
  EXPECT_THAT(trainer.results(), ElementsAre(ElementsAre(Pair("t", 1.5))));
}

TEST_F(SeveralLoaders, GivePredictionsByLoader) {
  Trainer trainer(options());
  const auto predictions = trainer.predict(model_, {batches(2, 1), batches(3, 3)});
  EXPECT_EQ(nlohmann::json(numbers(predictions)), testing::golden_loops("several_loaders_predict"));
  EXPECT_EQ(trainer.predict(model_, batches(2)).size(), 2U);
}

TEST_F(SeveralLoaders, OfADataModule) {
  struct Data : DataModule<Example> {
    std::optional<Loader<Example>> train_dataloader() override { return batches(1); }
    Loaders<Example> val_dataloaders() override { return {batches(2, 1), batches(1, 4)}; }
    Loaders<Example> predict_dataloaders() override { return {batches(1, 1), batches(2, 3)}; }
  };
  const auto data = std::make_shared<Data>();
  auto chosen = options();
  chosen.num_sanity_val_steps = 0;
  Trainer trainer(chosen);
  trainer.fit(model_, data);
  EXPECT_THAT(model_->places, ElementsAre(Pair(0, 0), Pair(0, 1), Pair(1, 0)));
  EXPECT_EQ(trainer.validate(model_, data).at("v/dataloader_idx_1"), 4);
  EXPECT_EQ(trainer.predict(model_, data).size(), 3U);
}

TEST_F(SeveralLoaders, MayShareAName) {
  struct Shared : EvaluatedImpl {
    void validation_step(const Example& batch, StepContext& step) override {
      step.log("v", batch.data.mean(), {.add_dataloader_idx = false});
    }
  };
  Trainer trainer(options());
  const auto all = trainer.validate(std::make_shared<Shared>(), {batches(3, 1), batches(1, 5)});
  EXPECT_THAT(all, ElementsAre(Pair("v", 2)));
  EXPECT_THAT(trainer.results(), ElementsAre(all, all));
}

TEST_F(SeveralLoaders, RefuseTheirOwnSuffixInAName) {
  struct Named : EvaluatedImpl {
    void validation_step(const Example&, StepContext& step) override { step.log("v/dataloader_idx_0", 1); }
  };
  test::expect_error<ConfigError>([&] { Trainer(options()).validate(std::make_shared<Named>(), batches(1)); },
                                  {"v/dataloader_idx_0", "without /dataloader_idx_"});
}

TEST_F(SeveralLoaders, HaveTheirOwnValueOfOneMetric) {
  struct Measured : EvaluatedImpl {
    void validation_step(const Example& batch, StepContext& step) override {
      mean.update(batch.data);
      step.log("m", mean);
      whole.update(batch.data);
      step.log("w", whole, {.add_dataloader_idx = false});
    }
    metrics::Mean mean, whole;
  };
  Trainer trainer(options());
  EXPECT_THAT(
      trainer.validate(std::make_shared<Measured>(), {batches(3, 1), batches(1, 5)}),
      UnorderedElementsAre(Pair("m/dataloader_idx_0", 1), Pair("m/dataloader_idx_1", 5), Pair("w", 2)));
}

// Saves behind a batch of the second loader.
struct SaveInValidation final : Callback {
  explicit SaveInValidation(std::filesystem::path folder_) : folder(std::move(folder_)) {}
  void on_validation_batch_end(StepContext& step) override {
    if (step.dataloader_idx() == 1 && step.batch_idx() == 1) step.save_checkpoint(folder);
  }
  std::filesystem::path folder;
};

TEST_F(SeveralLoaders, AreGoneOnWithInTheMidstOfOne) {
  auto chosen = options();
  chosen.num_sanity_val_steps = 0;
  chosen.callbacks = {std::make_shared<SaveInValidation>(folder_ / "x.ckpt")};
  const auto values = [](std::int64_t from, std::int64_t to) {
    return loader(tensor_dataset(torch::arange(from, to, torch::kFloat).view({-1, 1})), {.batch_size = 1});
  };
  Trainer whole(chosen);
  whole.fit(model_, batches(1), {values(0, 3), values(5, 9), values(20, 22)});

  chosen.callbacks.clear();
  chosen.run.run_dir = folder_ / "resumed";
  Evaluated model;
  Trainer resumed(chosen);
  resumed.fit(model, batches(1), {values(0, 3), values(5, 9), values(20, 22)}, folder_ / "x.ckpt");
  EXPECT_THAT(model->places, ElementsAre(Pair(1, 2), Pair(1, 3), Pair(2, 0), Pair(2, 1)));
  EXPECT_EQ(resumed.callback_metrics(), whole.callback_metrics());
  EXPECT_EQ(resumed.callback_metrics().at("v/dataloader_idx_1"), 6.5);
}

// Saves behind a batch, and tells how many numbers its logger had then.
struct SaveBehind final : Callback {
  SaveBehind(Place place_, std::filesystem::path folder_)
      : place(std::move(place_)), folder(std::move(folder_)) {}
  void on_validation_batch_end(StepContext& step) override {
    if (Place(step.dataloader_idx(), step.batch_idx()) != place) return;
    step.save_checkpoint(folder);
    rows_before = logger->rows.size();
  }
  Place place;
  std::filesystem::path folder;
  std::shared_ptr<testing::MemoryLogger> logger = std::make_shared<testing::MemoryLogger>();
  std::size_t rows_before = 0;
};

TEST_F(SeveralLoaders, AreGoneOnWithByTheRowOfTheBatchThatWasSaved) {
  auto chosen = options();
  chosen.num_sanity_val_steps = 0;
  const auto moments = {Place(0, 0), Place(0, 1), Place(1, 0), Place(1, 2)};
  for (const auto& place : moments) {
    SCOPED_TRACE(::testing::PrintToString(place));
    const auto saver = std::make_shared<SaveBehind>(place, folder_ / "x.ckpt");
    chosen.callbacks = {saver};
    chosen.logger = saver->logger;
    Trainer(chosen).fit(Evaluated(), batches(1), {batches(2, 1), batches(3, 5)});
    const auto rest = std::make_shared<testing::MemoryLogger>();
    chosen.callbacks.clear();
    chosen.logger = rest;
    Trainer(chosen).fit(Evaluated(), batches(1), {batches(2, 1), batches(3, 5)}, folder_ / "x.ckpt");
    const auto before = static_cast<std::ptrdiff_t>(saver->rows_before);
    const auto& [rows, values] = std::tie(saver->logger->rows, saver->logger->values);
    EXPECT_EQ(rest->rows, std::vector(rows.begin() + before, rows.end()));
    EXPECT_EQ(rest->values, std::vector(values.begin() + before, values.end()));
  }
}

TEST_F(SeveralLoaders, HaveNoRowOfABatchThatFailedAndRunsAgain) {
  struct Fails : EvaluatedImpl {
    explicit Fails(bool fails_) : fails(fails_) {}
    void validation_step(const Example& batch, StepContext& step) override {
      EvaluatedImpl::validation_step(batch, step);
      if (fails && step.batch_idx() == 1) throw std::runtime_error("scripted");
    }
    bool fails;
  };
  const auto saver = std::make_shared<OnExceptionCheckpoint>();
  auto chosen = options();
  chosen.num_sanity_val_steps = 0;
  chosen.callbacks = {saver};
  EXPECT_THROW(Trainer(chosen).fit(std::make_shared<Fails>(true), batches(1), batches(3)),
               std::runtime_error);
  const auto rest = std::make_shared<testing::MemoryLogger>();
  chosen.callbacks.clear();
  chosen.logger = rest;
  Trainer(chosen).fit(std::make_shared<Fails>(false), batches(1), batches(3), saver->ckpt_path());
  EXPECT_THAT(rest->rows, Contains("both_step@1"));
  EXPECT_THAT(rest->rows, Not(Contains("both_step@0")));
}

TEST_F(SeveralLoaders, NeedOneAtLeast) {
  test::expect_error<ConfigError>([&] { Trainer(options()).validate(model_, Loaders<Example>()); },
                                  {"no loader", "validate"});
}

}  // namespace
}  // namespace lockstep
