// Metrics that are logged as a whole: they are of the samples of their epoch and of no others, also where a
// run goes on in the midst of it.
#include <gmock/gmock.h>
#include <lockstep/lockstep.h>

#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using Values = std::vector<std::pair<std::string, double>>;

// Adds up its samples, in training and in validation.
struct MeasuredImpl : Module<Example> {
  MeasuredImpl() {
    weight = register_parameter("weight", torch::ones({1}));
    register_module("norm", norm);
  }
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    trained.update(batch.data);
    step.log("trained", trained);
    return (weight * norm->forward(batch.data)).pow(2).sum();
  }
  void validation_step(const Example& batch, StepContext& step) override {
    step.log("validated", validated);
    validated.update(batch.data);
  }
  Optimizers configure_optimizers() override { return {.optimizer = SGD{.lr = 0.1}}; }
  StateTree state() const override {
    StateTree state;
    if (gives_metrics) state.set("trained", trained.state());
    return state;
  }
  void load_state(const StateTree& state) override {
    if (gives_metrics) trained.load_state(state.get<StateTree>("trained"));
  }

  torch::Tensor weight;
  torch::nn::BatchNorm1d norm{1};
  metrics::Sum trained, validated;
  bool gives_metrics = false;
};

struct LoggedRows final : Logger {
  void log_metrics(std::span<const Metric> metrics, std::int64_t, std::int64_t) override {
    if (metrics.empty()) ++empty_rows;
    for (const auto& [name, value] : metrics) values.emplace_back(name, value);
  }
  void log_hyperparams(const HyperParameters&) override {}
  void finalize(const std::string&) override {}
  Values values;
  int empty_rows = 0;
};

// Logs each name in steps and at the end of the epoch.
struct TwiceImpl final : MeasuredImpl {
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    step.log("step", batch.data.sum());
    step.log("epoch", batch.data.sum(), per_epoch);
    return (weight * norm->forward(batch.data)).pow(2).sum();
  }
  void on_train_epoch_end(TrainContext& context) override {
    context.log("step", 100);
    context.log("epoch", 200, per_epoch);
  }
  void validation_step(const Example& batch, StepContext& step) override {
    step.log("val", batch.data.sum());
  }
  void on_validation_epoch_end(TrainContext& context) override { context.log("val", 300); }
  LogOptions per_epoch{.on_step = false, .on_epoch = true};
};

// Saves in the first epoch.
struct Saver final : Callback {
  Saver(std::filesystem::path folder_, std::string moment_)
      : folder(std::move(folder_)), moment(std::move(moment_)) {}
  void on_train_batch_end(StepContext& step, const TrainOutput&) override {
    at("batch " + std::to_string(step.batch_idx()), step);
  }
  void on_validation_batch_end(StepContext& step) override {
    at("validation batch " + std::to_string(step.batch_idx()), step);
  }
  void on_validation_epoch_end(TrainContext& context) override { at("validation epoch end", context); }
  void on_validation_end(TrainContext& context) override { at("validation end", context); }
  void on_train_epoch_end(TrainContext& context) override { at("epoch end", context); }

  void at(const std::string& now, TrainContext& context) const {
    if (now == moment && context.current_epoch() == 0) context.save_checkpoint(folder);
  }
  std::filesystem::path folder;
  std::string moment;
};

class LoggedMetrics : public ::testing::Test {
 protected:
  TrainerOptions options(std::vector<std::shared_ptr<Callback>> callbacks = {}) {
    TrainerOptions found{.max_epochs = 2, .num_sanity_val_steps = 0, .enable_progress_bar = false};
    found.enable_model_summary = false;
    found.callbacks = std::move(callbacks);
    found.logger = rows_ = std::make_shared<LoggedRows>();
    found.run.run_dir = folder_ / "run";
    return found;
  }
  // 0, 1, ... in batches of two.
  static Loader<Example> numbers(std::int64_t count) {
    return loader(tensor_dataset(torch::arange(static_cast<float>(count)).unsqueeze(1)), {.batch_size = 2});
  }
  static std::shared_ptr<MeasuredImpl> model(bool gives_metrics = false) {
    auto made = std::make_shared<MeasuredImpl>();
    made->gives_metrics = gives_metrics;
    return made;
  }
  Values whole_run() {
    Trainer(options()).fit(model(), numbers(8), numbers(6));
    return rows_->values;
  }
  // What a run logs that goes on from `moment`.
  Values rest_from(const std::string& moment, bool gives_metrics = false) {
    return rest_of([&] { return model(gives_metrics); }, moment);
  }
  template <class MakeModel>
  Values rest_of(MakeModel make_model, const std::string& moment) {
    const auto saved = folder_ / "saved.ckpt";
    Trainer(options({std::make_shared<Saver>(saved, moment)})).fit(make_model(), numbers(8), numbers(6));
    Trainer(options()).fit(make_model(), numbers(8), numbers(6), saved);
    return rows_->values;
  }

  test::TemporaryFolder folder_;
  std::shared_ptr<LoggedRows> rows_;
};

TEST_F(LoggedMetrics, AreOfEveryEpoch) {
  EXPECT_THAT(whole_run(), ElementsAre(Pair("validated", 15), Pair("trained", 28), Pair("validated", 15),
                                       Pair("trained", 28)));
}

TEST_F(LoggedMetrics, AreKeptByCheckpointsOfAllMoments) {
  const auto whole = whole_run();
  for (const std::string moment :
       {"batch 0", "batch 1", "batch 3", "validation batch 0", "validation batch 2", "validation epoch end"})
    EXPECT_EQ(rest_from(moment), whole) << moment;
  EXPECT_EQ(rest_from("validation end"), Values(whole.begin() + 1, whole.end()));
  EXPECT_EQ(rest_from("epoch end"), Values(whole.begin() + 2, whole.end()));
}

TEST_F(LoggedMetrics, OfAnEpochHookTakeThePlacesOfThoseOfSteps) {
  const auto twice = [] { return std::make_shared<TwiceImpl>(); };
  Trainer trainer(options());
  trainer.fit(twice(), numbers(8), numbers(6));
  const auto of_epoch = ElementsAre(Pair("val", 300), Pair("epoch", 200), Pair("step", 100));
  const auto whole = rows_->values;
  ASSERT_EQ(whole.size(), 6U);
  EXPECT_THAT(Values(whole.begin(), whole.begin() + 3), of_epoch);
  EXPECT_THAT(Values(whole.begin() + 3, whole.end()), of_epoch);
  EXPECT_EQ(trainer.callback_metrics(), (Metrics{{"epoch", 200}, {"step", 100}, {"val", 300}}));
  for (const std::string moment : {"batch 1", "validation batch 1", "validation epoch end"})
    EXPECT_EQ(rest_of(twice, moment), whole) << moment;
  EXPECT_EQ(rest_of(twice, "epoch end"), Values(whole.begin() + 3, whole.end()));
}

// What hooks see of the epoch at its end, as Lightning's do.
struct AtEnd final : Callback {
  void on_validation_epoch_end(TrainContext& context) override { look("validation epoch", context); }
  void on_validation_end(TrainContext& context) override { look("validation", context); }
  void on_train_epoch_end(TrainContext& context) override { look("epoch", context); }
  void look(const std::string& hook, TrainContext& context) {
    auto seen = hook + " " + std::to_string(context.current_epoch());
    for (const auto& [name, value] : context.callback_metrics())
      seen += " " + name + "=" + std::to_string(static_cast<int>(value));
    all.push_back(seen);
  }
  std::vector<std::string> all;
};

// Numbers and a metric, of the epoch's number.
struct OfEpochImpl final : MeasuredImpl {
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    step.log("loss", 10 * step.current_epoch(), {.on_step = false, .on_epoch = true});
    return (weight * norm->forward(batch.data)).pow(2).sum();
  }
  void validation_step(const Example&, StepContext& step) override {
    validated.update(torch::tensor(static_cast<float>(step.current_epoch())));
    step.log("sum", validated);
    step.log("val", step.current_epoch());
  }
};

TEST_F(LoggedMetrics, AreShownToHooksOfTheEpochsEnd) {
  const auto seen = std::make_shared<AtEnd>();
  Trainer(options({seen})).fit(std::make_shared<OfEpochImpl>(), numbers(8), numbers(6));
  EXPECT_THAT(seen->all, ElementsAre("validation epoch 0 sum=0 val=0", "validation 0 sum=0 val=0",
                                     "epoch 0 loss=0 sum=0 val=0", "validation epoch 1 loss=0 sum=3 val=1",
                                     "validation 1 loss=0 sum=3 val=1", "epoch 1 loss=10 sum=3 val=1"));
}

TEST_F(LoggedMetrics, GiveLoggersNoEmptyRows) {
  EXPECT_FALSE(whole_run().empty());
  EXPECT_EQ(rows_->empty_rows, 0);
}

TEST_F(LoggedMetrics, CountOnceWhereTheModuleBringsThemBackToo) {
  const auto whole = whole_run();
  for (const std::string moment : {"batch 0", "batch 2"}) EXPECT_EQ(rest_from(moment, true), whole) << moment;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(rest_from("batch 3", true)[1], whole[1]);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr("log(\"trained\")"));
}

TEST_F(LoggedMetrics, KnowNothingOfBatchNormsOwnPass) {
  const auto whole = whole_run();
  const auto twice = model();
  for (int fit = 0; fit < 2; ++fit) {
    const auto swa = std::make_shared<StochasticWeightAveraging>(
        StochasticWeightAveragingOptions{.swa_lrs = {0.1}, .swa_epoch_start = 1});
    Trainer(options({swa})).fit(twice, numbers(8), numbers(6));
    EXPECT_EQ(rows_->values, whole) << fit;
  }
  const auto in_the_midst = std::make_shared<LambdaCallback>(
      LambdaHooks{.on_train_batch_end = [](StepContext& step, const TrainOutput&) { step.update_bn(); }});
  Trainer(options({in_the_midst})).fit(model(), numbers(8), numbers(6));
  EXPECT_EQ(rows_->values, whole);
}

TEST_F(LoggedMetrics, KnowNothingOfARunThatFailed) {
  const auto whole = whole_run();
  const auto again = model();
  const auto fails = std::make_shared<LambdaCallback>(LambdaHooks{
      .on_train_batch_end = [](StepContext&, const TrainOutput&) { throw std::runtime_error("scripted"); }});
  EXPECT_THROW(Trainer(options({fails})).fit(again, numbers(8), numbers(6)), std::runtime_error);
  Trainer(options()).fit(again, numbers(8), numbers(6));
  EXPECT_EQ(rows_->values, whole);
}

}  // namespace
}  // namespace lockstep
