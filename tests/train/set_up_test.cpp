// What a run refuses before it begins, and what it leaves when its beginning fails.
#include <gmock/gmock.h>

#include "support/expect_error.h"
#include "train/memory_logger.h"
#include "train/slope.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::MemoryLogger;
using testing::Slope;
using testing::SlopeImpl;
using testing::SlopeTest;

// A model whose optimizer and metric's name are the test's.
struct ConfiguredImpl final : SlopeImpl {
  Optimizers configure_optimizers() override { return optimizers; }
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    if (!metric.empty()) step.log(metric, 1);
    return SlopeImpl::training_step(batch, step);
  }
  void validation_step(const Example&, StepContext&) override {
    if (fails_in_validation) throw std::runtime_error("scripted");
  }

  Optimizers optimizers{.optimizer = SGD{.lr = 1.0}};
  std::string metric;
  bool automatic_optimization() const override { return !is_manual; }

  bool fails_in_validation = false;
  bool is_manual = false;
};
TORCH_MODULE(Configured);

struct OnlyTrainsImpl final : Module<Example> {
  OnlyTrainsImpl() { weight = register_parameter("weight", torch::zeros({1})); }
  torch::Tensor training_step(const Example& batch, StepContext&) override {
    return (weight * batch.data.mean()).sum();
  }
  torch::Tensor weight;
};
TORCH_MODULE(OnlyTrains);

struct EmptyImpl final : Module<Example> {
  Optimizers configure_optimizers() override { return {.optimizer = SGD{.lr = 1.0}}; }
  torch::Tensor weight = register_parameter("weight", torch::zeros({1}));
};
TORCH_MODULE(Empty);

class SetUp : public SlopeTest {
 protected:
  void expect_refused(const std::vector<std::string>& words) {
    test::expect_error<ConfigError>([&] { Trainer(options()).fit(configured_, batches(2)); }, words);
    EXPECT_EQ(configured_->training_steps, 0);
  }

  Configured configured_;
};

TEST_F(SetUp, NamesWhatAModuleLacks) {
  test::expect_error<ConfigError>([&] { Trainer(options()).fit(OnlyTrains(), batches(1)); },
                                  {"configure_optimizers"});
  test::expect_error<ConfigError>([&] { Trainer(options()).fit(Empty(), batches(1)); }, {"training_step"});
  test::expect_error<ConfigError>([&] { Trainer(options()).validate(Empty(), batches(1)); },
                                  {"validation_step"});
  test::expect_error<ConfigError>([&] { Trainer(options()).test(Empty(), batches(1)); }, {"test_step"});
  test::expect_error<ConfigError>([&] { Trainer(options()).predict(Empty(), batches(1)); }, {"predict_step"});
  const std::shared_ptr<EmptyImpl> none;
  test::expect_error<ConfigError>([&] { Trainer(options()).fit(none, batches(1)); }, {"fit", "null pointer"});
  test::expect_error<ConfigError>([&] { Trainer(options()).test(none, batches(1)); },
                                  {"test", "null pointer"});
  const std::shared_ptr<DataModule<Example>> no_data;
  test::expect_error<ConfigError>([&] { Trainer(options()).fit(Slope(), no_data); }, {"no loader for fit"});
  test::expect_error<ConfigError>([&] { Trainer(options()).test(Slope(), no_data); }, {"no loader for test"});
  auto chosen = options();
  chosen.strategy = std::shared_ptr<Strategy>();
  test::expect_error<ConfigError>([&] { Trainer trainer(chosen); }, {"strategy", "null pointer"});
}

TEST_F(SetUp, RefusesARunOrCheckpointOfTheTrainerWithinItsOwnRun) {
  std::optional<Trainer> trainer;
  const auto refused = [&](const std::function<void()>& call, const std::vector<std::string>& words) {
    auto chosen = options();
    chosen.callbacks = {
        std::make_shared<LambdaCallback>(LambdaHooks{.on_train_epoch_end = [&](TrainContext&) { call(); }})};
    trainer.emplace(chosen);
    test::expect_error<ConfigError>([&] { trainer->fit(testing::Slope(), batches(1)); }, words);
  };
  refused([&] { trainer->validate(testing::Slope(), batches(1)); },
          {"validate within a run", "another Trainer"});
  refused([&] { trainer->fit(testing::Slope(), batches(1)); }, {"fit within a run"});
  refused([&] { trainer->save_checkpoint(folder_ / "x.ckpt"); }, {"save_checkpoint()", "context"});
}

TEST_F(SetUp, RefusesSchedulesThatCannotBeStepped) {
  configured_->optimizers.lr_scheduler = LRScheduler{.scheduler = ReduceLROnPlateau{}};
  expect_refused({"LRScheduler::monitor", "ReduceLROnPlateau", "val_loss", "none"});
  configured_->optimizers.lr_scheduler = LRScheduler{.scheduler = StepLR{.step_size = 1}, .frequency = 0};
  expect_refused({"LRScheduler::frequency", ">= 1", "0"});
}

TEST_F(SetUp, RefusesOptimizersThatAreNone) {
  configured_->optimizers = {};
  expect_refused({"configure_optimizers", "an empty"});
}

TEST_F(SetUp, RefusesCallbacksThatManualOptimisationHasNoPlaceFor) {
  configured_->is_manual = true;
  const std::vector<std::shared_ptr<Callback>> callbacks = {
      std::make_shared<StochasticWeightAveraging>(StochasticWeightAveragingOptions{.swa_lrs = {0.1}}),
      std::make_shared<GradientAccumulationScheduler>(AccumulationSchedule::Steps{{0, 2}})};
  for (const auto& callback : callbacks) {
    auto chosen = options(4);
    chosen.callbacks = {callback};
    test::expect_error<ConfigError>([&] { Trainer(chosen).fit(configured_, batches(2)); }, {"manual"});
  }
}

TEST_F(SetUp, RefusesNullCallbacks) {
  auto chosen = options();
  chosen.callbacks = {nullptr};
  test::expect_error<ConfigError>([&] { Trainer trainer(chosen); }, {"callbacks", "a null pointer"});
}

TEST_F(SetUp, RefusesBestWhereNothingChoosesIt) {
  auto chosen = options();
  chosen.fast_dev_run = 1;
  test::expect_error<ConfigError>([&] { Trainer(chosen).validate(model_, batches(1), "best"); },
                                  {"best", "fast_dev_run"});
  auto without = options();
  without.enable_checkpointing = false;
  test::expect_error<ConfigError>([&] { Trainer(without).validate(model_, batches(1), "best"); },
                                  {"best", "ModelCheckpoint", "enable_checkpointing"});
}

TEST_F(SetUp, RefusesACheckpointOfAnotherNumberOfOptimizers) {
  Trainer(options()).fit(model_, batches(1));
  configured_->is_manual = true;
  configured_->optimizers =
      several_optimizers({{.optimizer = SGD{.lr = 1.0}}, {.optimizer = SGD{.lr = 1.0}}});
  test::expect_error<CheckpointError>(
      [&] { Trainer(options(2)).fit(configured_, batches(1), {}, run_dir() / "checkpoints" / "last.ckpt"); },
      {"another number of optimizers", "2"});
}

TEST_F(SetUp, BenchmarkGoesBeforeWhatDeterminismWouldChoose) {
  auto& context = at::globalContext();
  const bool deterministic = context.deterministicAlgorithms(), benchmark = context.benchmarkCuDNN();
  for (const auto asked : {Deterministic::kFalse, Deterministic::kTrue, Deterministic::kWarn})
    for (const auto wanted : {std::optional<bool>(), std::optional(false), std::optional(true)})
      for (const bool before : {false, true}) {
        context.setBenchmarkCuDNN(before);
        auto chosen = options();
        chosen.deterministic = asked;
        chosen.benchmark = wanted;
        { Trainer trainer(chosen); }
        const bool otherwise = asked == Deterministic::kFalse && before;
        EXPECT_EQ(context.benchmarkCuDNN(), wanted.value_or(otherwise));
      }
  context.setDeterministicAlgorithms(deterministic, false);
  context.setBenchmarkCuDNN(benchmark);
}

TEST_F(SetUp, MatmulPrecisionIsAskedOfLibTorch) {
  auto& context = at::globalContext();
  const auto before = context.float32MatmulPrecision();
  for (const auto& [wanted, expected] :
       {std::pair(MatmulPrecision::kHigh, at::Float32MatmulPrecision::HIGH),
        std::pair(MatmulPrecision::kMedium, at::Float32MatmulPrecision::MEDIUM),
        std::pair(MatmulPrecision::kHighest, at::Float32MatmulPrecision::HIGHEST)}) {
    auto chosen = options();
    chosen.matmul_precision = wanted;
    { Trainer trainer(chosen); }
    EXPECT_EQ(context.float32MatmulPrecision(), expected);
    { Trainer trainer(options()); }
    EXPECT_EQ(context.float32MatmulPrecision(), expected) << "without the option it stays";
  }
  const char* const names[] = {"highest", "high", "medium"};
  context.setFloat32MatmulPrecision(names[static_cast<int>(before)]);
}

TEST_F(SetUp, RefusesNamesThatAreNotText) {
  configured_->metric =
      "pr\xe9"
      "cision";
  test::expect_error<ConfigError>([&] { Trainer(options()).fit(configured_, batches(2)); }, {"UTF-8"});
}

TEST_F(SetUp, TakesTheProgramsModelSummaryOnce) {
  auto chosen = options();
  chosen.enable_model_summary = true;
  chosen.callbacks = {std::make_shared<ModelSummary>(2)};
  ::testing::internal::CaptureStdout();
  Trainer(chosen).fit(model_, batches(1));
  const auto shown = ::testing::internal::GetCapturedStdout();
  ASSERT_THAT(shown, HasSubstr("Trainable params"));
  EXPECT_EQ(shown.find("Total params"), shown.rfind("Total params")) << shown;
  chosen.enable_model_summary = false;
  test::expect_error<ConfigError>([&] { Trainer(chosen).fit(model_, batches(1)); },
                                  {"ModelSummary", "none with enable_model_summary = false", "1"});
}

TEST_F(SetUp, AFailedSanityCheckIsToldToTheLoggers) {
  auto chosen = options();
  chosen.num_sanity_val_steps = 1;
  const auto logger = std::make_shared<MemoryLogger>();
  chosen.logger = logger;
  configured_->fails_in_validation = true;
  EXPECT_THROW(Trainer(chosen).fit(configured_, batches(1), batches(1)), std::runtime_error);
  EXPECT_EQ(logger->end, "failed");
}

TEST_F(SetUp, EarlierRowsOfARunDirectoryArePutAside) {
  auto chosen = options();
  chosen.logger = {"csv", "jsonl"};
  Trainer(chosen).fit(model_, batches(1));
  for (const char* name : {"metrics.csv", "metrics.jsonl"}) ASSERT_TRUE(exists(run_dir() / name));
  const auto size = file_size(run_dir() / "metrics.jsonl");
  Trainer(chosen).fit(model_, batches(1));
  EXPECT_TRUE(exists(run_dir() / "metrics.1.csv"));
  EXPECT_EQ(file_size(run_dir() / "metrics.1.jsonl"), size);
}

// Lightning's rule, inside of fit as well: the epoch's values are written by then.
TEST_F(SetUp, NobodyLogsWhereAValidationHasEnded) {
  struct LogsLate final : Callback {
    void on_validation_end(TrainContext& context) override { context.log("late", 1.0); }
  };
  auto chosen = options();
  chosen.callbacks = {std::make_shared<LogsLate>()};
  test::expect_error<ConfigError>([&] { Trainer(chosen).fit(model_, batches(2), batches(1)); },
                                  {"log(\"late\")", "a hook that cannot log"});
}

TEST_F(SetUp, WhatIsSavedByHandIsARunOfFit) {
  Trainer trainer(options());
  const auto save = [&] { trainer.save_checkpoint(folder_ / "x.ckpt"); };
  test::expect_error<ConfigError>(save, {"save_checkpoint()", "right after fit", "before fit"});
  trainer.fit(model_, batches(2));
  save();
  trainer.test(model_, batches(1));
  test::expect_error<ConfigError>(save, {"save_checkpoint()", "right after fit", "after test"});
}

TEST_F(SetUp, DataWithoutABatchAreNamed) {
  const auto too_few = loader(tensor_dataset(torch::ones({1, 1})), {.batch_size = 2, .drop_last = true});
  const auto said_of = [&](const auto& run) {
    ::testing::internal::CaptureStderr();
    Trainer trainer(options());
    run(trainer);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said_of([&](Trainer& trainer) {
                trainer.fit(model_, batches(1), {batches(1), too_few});
              }),
              HasSubstr("loader 1 of validate has no batch"));
  EXPECT_THAT(said_of([&](Trainer& trainer) { trainer.test(model_, too_few); }),
              HasSubstr("loader 0 of test has no batch"));
  test::expect_error<DataError>([&] { Trainer(options()).fit(model_, too_few); }, {"no rank gets a batch"});
  EXPECT_EQ(said_of([&](Trainer& trainer) { trainer.fit(model_, batches(1), batches(1)); }).find("no batch"),
            std::string::npos);
}

// Whose class is none of std::exception's.
TEST_F(SetUp, WhatIsThrownIsToldToAllWhateverItIs) {
  struct Throws final : Callback {
    void on_train_start(TrainContext&) override { throw 42; }
    void on_exception(TrainContext&, const std::exception& error) override { told = error.what(); }
    std::string told;
  };
  const auto callback = std::make_shared<Throws>();
  auto chosen = options();
  chosen.callbacks = {callback};
  Trainer trainer(chosen);
  EXPECT_THROW(trainer.fit(model_, batches(1)), int);
  EXPECT_THAT(callback->told, HasSubstr("no std::exception"));
  EXPECT_THAT(test::content(run_dir() / "summary.json"), HasSubstr("\"failed\""));
  test::expect_error<ConfigError>([&] { trainer.fit(model_, batches(1)); }, {"last run failed"});
}

}  // namespace
}  // namespace lockstep
