// What a run says of itself: loggers, learning rates, profiles, the table of the model.
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <lockstep/train/pytorch_profiler.h>

#include "support/expect_error.h"
#include "train/memory_logger.h"
#include "train/slope.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MemoryLogger;
using testing::SlopeTest;

std::string read(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(LoggerList, TakesNamesAndLoggers) {
  EXPECT_TRUE(LoggerList(false).empty());
  EXPECT_EQ(LoggerList(true).print(), "csv");
  EXPECT_EQ(LoggerList::parse("csv, tensorboard")->print(), "csv,tensorboard");
  EXPECT_EQ(LoggerList::parse("false")->items().size(), 0U);
  EXPECT_FALSE(LoggerList::parse("wandb"));
  test::expect_error<ConfigError>([] { LoggerList list("wandb"); }, {"logger", "wandb", "tensorboard"});
  test::expect_error<ConfigError>([] { LoggerList list{std::shared_ptr<Logger>()}; }, {"logger", "null"});
}

// So that a saved configuration keeps them: see tests/programs/trainers_test.py.
TEST(LoggerList, HasAWordForThoseOfTheProgram) {
  const auto own = std::make_shared<MemoryLogger>();
  EXPECT_EQ(LoggerList(own).print(), "own");
  EXPECT_EQ(LoggerList({own, "csv", own}).print(), "own,csv");
  EXPECT_EQ(LoggerList::parse("csv,own")->print(), "csv,own");
  EXPECT_THROW(LoggerList("own"), ConfigError);
  test::expect_error<ConfigError>([] { Trainer({.logger = *LoggerList::parse("own")}); }, {"logger", "own"});
}

TEST(ProfilerChoice, HasAWordForThatOfTheProgram) {
  EXPECT_EQ(ProfilerChoice(std::make_shared<SimpleProfiler>()).print(), "own");
  EXPECT_EQ(ProfilerChoice::parse("own")->print(), "own");
  EXPECT_THROW(ProfilerChoice("own"), ConfigError);
  EXPECT_THROW(ProfilerChoice::parse("own")->get(), ConfigError);
}

TEST(ProfilerChoice, TakesNames) {
  EXPECT_FALSE(ProfilerChoice());
  EXPECT_EQ(ProfilerChoice::parse("simple")->print(), "simple");
  EXPECT_EQ(ProfilerChoice::parse("none")->print(), "none");
  EXPECT_EQ(ProfilerChoice::parse("pytorch")->print(), "pytorch");
  EXPECT_NE(std::dynamic_pointer_cast<PyTorchProfiler>(ProfilerChoice("pytorch").get()), nullptr);
  EXPECT_FALSE(ProfilerChoice::parse("xla"));
  test::expect_error<ConfigError>([] { ProfilerChoice choice("xla"); }, {"profiler", "xla", "trace"});
}

class Observation : public SlopeTest {};

TEST_F(Observation, LoggersOfTheProgramGetEverything) {
  auto chosen = options();
  const auto logger = std::make_shared<MemoryLogger>();
  chosen.logger = logger;
  chosen.log_every_n_steps = 2;
  chosen.run.hyper_parameters = {{"model/hidden", std::int64_t{4}}};
  Trainer(chosen).fit(model_, batches(4));
  EXPECT_THAT(logger->rows, ElementsAre("train_loss_step@1", "train_loss_step@3", "train_loss_epoch@3"));
  ASSERT_EQ(logger->parameters.size(), 1U);
  EXPECT_EQ(logger->end, "success");
}

// Lightning's numbers: rows come with every third stepped batch, of which an epoch has six.
TEST_F(Observation, RowsAreNumberedBySteppedBatches) {
  auto chosen = options(3);
  const auto logger = std::make_shared<MemoryLogger>();
  chosen.logger = logger;
  chosen.log_every_n_steps = 3;
  chosen.accumulate_grad_batches = 2;
  Trainer(chosen).fit(model_, batches(12));
  EXPECT_THAT(logger->rows, ElementsAre("train_loss_step@2", "train_loss_step@5", "train_loss_epoch@5",
                                        "train_loss_step@8", "train_loss_step@11", "train_loss_epoch@11",
                                        "train_loss_step@14", "train_loss_step@17", "train_loss_epoch@17"));
}

TEST_F(Observation, LoggersByName) {
  auto chosen = options();
  chosen.logger = {"csv", "jsonl", "tensorboard"};
  Trainer(chosen).fit(model_, batches(1));
  EXPECT_TRUE(fs::exists(run_dir() / "metrics.csv"));
  EXPECT_TRUE(fs::exists(run_dir() / "metrics.jsonl"));
  bool has_events = false;
  for (const auto& entry : fs::directory_iterator(run_dir()))
    has_events = has_events || entry.path().filename().string().starts_with("events.out.tfevents.");
  EXPECT_TRUE(has_events);
}

TEST_F(Observation, LearningRatesOfEverySteppedBatch) {
  struct Cooling : testing::SlopeImpl {
    Optimizers configure_optimizers() override {
      return {
          .optimizer = SGD{.lr = 1.0},
          .lr_scheduler = LRScheduler{.scheduler = StepLR{.step_size = 1, .gamma = 0.5}, .interval = "step"}};
    }
  };
  auto chosen = options();
  const auto logger = std::make_shared<MemoryLogger>();
  chosen.logger = logger;
  chosen.log_every_n_steps = 1;
  chosen.callbacks = {std::make_shared<LearningRateMonitor>()};
  Trainer trainer(chosen);
  trainer.fit(std::make_shared<Cooling>(), batches(3));
  EXPECT_THAT(logger->rows, ::testing::IsSupersetOf({"lr-SGD@0", "lr-SGD@1", "lr-SGD@2"}));
  EXPECT_EQ(trainer.callback_metrics().at("lr-SGD"), 0.25) << "of the last step, for names of checkpoints";
}

// As hooks may change it.
TEST_F(Observation, LearningRatesWithoutAScheduleAreOfStepsAndOfEpochs) {
  auto chosen = options();
  const auto logger = std::make_shared<MemoryLogger>();
  chosen.logger = logger;
  chosen.log_every_n_steps = 2;
  chosen.callbacks = {std::make_shared<LearningRateMonitor>()};
  Trainer(chosen).fit(std::make_shared<testing::SlopeImpl>(), batches(4));
  EXPECT_THAT(logger->rows, ::testing::IsSupersetOf({"lr-SGD@0", "lr-SGD@1", "lr-SGD@3"}));
}

TEST_F(Observation, LearningRatesNeedALogger) {
  auto chosen = options();
  chosen.logger = false;
  chosen.callbacks = {std::make_shared<LearningRateMonitor>()};
  test::expect_error<ConfigError>([&] { Trainer(chosen).fit(model_, batches(1)); },
                                  {"LearningRateMonitor", "logger"});
}

TEST_F(Observation, AProfilerMeasuresStepsAndHooks) {
  auto chosen = options();
  const auto profiler = std::make_shared<SimpleProfiler>(SimpleProfilerOptions{.filename = "times"});
  chosen.profiler = profiler;
  chosen.callbacks = {std::make_shared<LambdaCallback>(LambdaHooks{.on_train_start = [](TrainContext&) {}})};
  Trainer(chosen).fit(model_, batches(3), batches(1));
  const auto report = read(run_dir() / "fit-times-0.txt");
  for (const char* action : {"[Strategy]SingleDeviceStrategy.training_step",
                             "[Strategy]SingleDeviceStrategy.backward",
                             "[Strategy]SingleDeviceStrategy.validation_step",
                             "[Strategy]SingleDeviceStrategy.batch_to_device",
                             "[Strategy]SingleDeviceStrategy.optimizer_step",
                             "[_TrainingEpochLoop].train_dataloader_next",
                             "[_EvaluationLoop].val_next",
                             "run_training_epoch",
                             "run_training_batch",
                             "save_checkpoint",
                             "[Callback]LambdaCallback.on_train_start",
                             "[LightningModule]Slope.setup",
                             "[LightningModule]Slope.configure_optimizers",
                             "[LightningModule]Slope.on_before_batch_transfer",
                             "[LightningModule]Slope.transfer_batch_to_device",
                             "[LightningModule]Slope.on_after_batch_transfer",
                             "[LightningModule]Slope.on_train_batch_end",
                             "[LightningModule]Slope.optimizer_step",
                             "[LightningModule]Slope.optimizer_zero_grad",
                             "[LightningModule]Slope.configure_gradient_clipping"})
    EXPECT_THAT(report, HasSubstr("|  " + std::string(action) + " ")) << action;
}

TEST_F(Observation, ATraceLiesInTheRunsFolder) {
  auto chosen = options();
  chosen.profiler = "trace";
  Trainer(chosen).fit(model_, batches(1));
  bool is_there = false;
  for (const auto& entry : fs::directory_iterator(run_dir()))
    is_there = is_there || entry.path().filename().string().find("trace") != std::string::npos;
  EXPECT_TRUE(is_there);
}

TEST_F(Observation, DeterminismIsAskedOfLibTorch) {
  auto& context = at::globalContext();
  const bool deterministic = context.deterministicAlgorithms();
  const bool warns = context.deterministicAlgorithmsWarnOnly();
  const bool benchmark = context.benchmarkCuDNN();
  auto chosen = options();
  chosen.deterministic = Deterministic::kWarn;
  chosen.benchmark = true;
  { Trainer trainer(chosen); }
  EXPECT_TRUE(context.deterministicAlgorithms());
  EXPECT_TRUE(context.deterministicAlgorithmsWarnOnly());
  EXPECT_TRUE(context.benchmarkCuDNN());
  context.setDeterministicAlgorithms(deterministic, warns);
  context.setBenchmarkCuDNN(benchmark);
}

TEST_F(Observation, PredictionsAreMadeInInferenceModeWhereAsked) {
  struct Ask : Callback {
    void on_predict_batch_start(StepContext&) override { seen = c10::InferenceMode::is_enabled(); }
    bool seen = false;
  };
  const auto ask = std::make_shared<Ask>();
  auto chosen = options();
  chosen.callbacks = {ask};
  chosen.limit_predict_batches = 1;
  EXPECT_EQ(Trainer(chosen).predict(model_, batches(3)).size(), 1U);
  EXPECT_TRUE(ask->seen);
  chosen.inference_mode = false;
  Trainer(chosen).predict(model_, batches(1));
  EXPECT_FALSE(ask->seen);
}

struct NetImpl : Module<Example> {
  NetImpl() {
    register_module("body", body);
    register_module("head", head);
    for (auto& parameter : body->parameters()) parameter.requires_grad_(false);
    head->eval();
  }
  torch::nn::Sequential body{torch::nn::Linear(4, 10), torch::nn::Linear(10, 100)};
  torch::nn::Linear head{100, 10};
};

TEST(ModelSummary, IsLightningsTable) {
  const NetImpl net;
  const auto text = summarize(net);
  EXPECT_THAT(text, HasSubstr("  | Name | Type       | Params | Mode \n"));
  EXPECT_THAT(text, HasSubstr("0 | body | Sequential | 1.1 K  | train"));
  EXPECT_THAT(text, HasSubstr("1 | head | Linear     | 1.0 K  | eval"));
  EXPECT_THAT(text, HasSubstr("1.0 K     Trainable params"));
  EXPECT_THAT(text, HasSubstr("1.1 K     Non-trainable params"));
  EXPECT_THAT(text, HasSubstr("2.2 K     Total params"));
  EXPECT_THAT(summarize(net, 2), HasSubstr("body.0"));
  EXPECT_THAT(summarize(net, 0), ::testing::Not(HasSubstr("body")));
}

}  // namespace
}  // namespace lockstep
