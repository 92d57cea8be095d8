// When a fit steps and validates.
#include <gmock/gmock.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/testing/fork_ranks.h>

#include <cmath>
#include <fstream>
#include <span>
#include <thread>

#include <nlohmann/json.hpp>

#include "support/expect_error.h"
#include "train/slope.h"
#include "train/trainer_rank.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using testing::SlopeTest;
using namespace std::chrono_literals;

TEST(AccumulationSchedule, HoldsFromItsEpochOn) {
  const AccumulationSchedule schedule{{1, 2}, {4, 8}};
  EXPECT_EQ(schedule.at(0), 1);
  EXPECT_EQ(schedule.at(1), 2);
  EXPECT_EQ(schedule.at(3), 2);
  EXPECT_EQ(schedule.at(9), 8);
  EXPECT_EQ(AccumulationSchedule(3).at(0), 3);
}

TEST(AccumulationSchedule, IsReadAndPrinted) {
  for (const char* text : {"4", "{0: 1, 4: 8}"}) EXPECT_EQ(AccumulationSchedule::parse(text)->print(), text);
  EXPECT_EQ(*AccumulationSchedule::parse("0:1,4:8"), (AccumulationSchedule{{0, 1}, {4, 8}}));
  for (const char* text : {"0", "-1", "", "{}", "{0}", "{-1: 2}", "{0: 0}", "{0: 1, 0: 2}", "a: 1", "1.5"})
    EXPECT_FALSE(AccumulationSchedule::parse(text)) << text;
}

TEST(ValCheckInterval, TellsOneBatchFromAWholeEpoch) {
  EXPECT_TRUE(ValCheckInterval::parse("1.0")->is_whole_epoch());
  EXPECT_FALSE(ValCheckInterval::parse("1")->is_whole_epoch());
  EXPECT_EQ(std::get<std::int64_t>(ValCheckInterval::parse("1")->value()), 1);
  EXPECT_EQ(std::get<std::chrono::milliseconds>(ValCheckInterval::parse("00:01:00:00")->value()), 1h);
  EXPECT_EQ(ValCheckInterval(15min).print(), "15m");
  for (const char* text : {"1", "1.0", "0.25", "15m"})
    EXPECT_EQ(ValCheckInterval::parse(text)->print(), text);
  for (const char* text : {"0", "-1", "0.0", "1.5", "0s", "often", ""})
    EXPECT_FALSE(ValCheckInterval::parse(text)) << text;
}

// Numbers up to a count that nobody is told.
struct CountingStream : IterableDataset<float, Example> {
  explicit CountingStream(int count) : count_(count) {}
  struct Numbers : ItemStream<float> {
    explicit Numbers(int count) : left(count) {}
    bool next(float& item) override {
      item = 1;
      return left-- > 0;
    }
    int left;
  };
  std::unique_ptr<ItemStream<float>> stream(const ShardSpec&, std::int64_t) const override {
    return std::make_unique<Numbers>(count_);
  }
  Example collate(std::vector<float> items) const override {
    const auto count = static_cast<std::int64_t>(items.size());
    return {.data = torch::tensor(items).view({count, 1}), .target = torch::zeros({count})};
  }
  int count_;
};

class Schedules : public SlopeTest {
 protected:
  // Training steps before each validation.
  std::vector<int> validations(TrainerOptions chosen, std::int64_t train_batches) {
    Trainer(std::move(chosen)).fit(model_, batches(train_batches), batches(1));
    return model_->validated_after;
  }
};

TEST_F(Schedules, AccumulateByEpoch) {
  auto chosen = options(3);
  chosen.accumulate_grad_batches = {{1, 2}, {2, 4}};
  Trainer trainer(chosen);
  trainer.fit(model_, batches(4));
  EXPECT_EQ(trainer.global_step(), 4 + 2 + 1);
  EXPECT_THAT(model_->steps_of_windows, ElementsAre(0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6));
}

// The window that is open keeps its gradients.
TEST_F(Schedules, AccumulateOtherwiseFromTheNextEpochOn) {
  auto chosen = options(2);
  chosen.accumulate_grad_batches = 4;
  chosen.callbacks = {std::make_shared<LambdaCallback>(
      LambdaHooks{.on_train_batch_end = [](StepContext& step, const TrainOutput&) {
        if (step.batch_idx() == 1) step.set_accumulate_grad_batches(2);
      }})};
  Trainer trainer(chosen);
  trainer.fit(model_, batches(8));
  EXPECT_THAT(model_->steps_of_windows, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5));
  EXPECT_EQ(model_->weight.item<double>(), -6);
}

// They do not say how far a window is.
void make_older(const std::filesystem::path& checkpoint) {
  const auto file = checkpoint / "manifest.json";
  auto manifest = nlohmann::json::parse(std::ifstream(file));
  auto& loops = manifest.at("state").at("loops").at("tree");
  EXPECT_EQ(loops.erase("window_done") + loops.erase("window_length"), 2U);
  const auto text = manifest.dump();
  std::ofstream(file) << text;
  std::ofstream(checkpoint / "manifest.xxh128")
      << checksum(std::as_bytes(std::span(text))) << "  manifest.json\n";
}

TEST_F(Schedules, WindowsOfOlderCheckpointsAreWorkedOut) {
  for (const auto partial : {PartialWindow::kAccumulated, PartialWindow::kCarry}) {
    const auto saved = folder_ / "older.ckpt";
    auto chosen = options(2);
    chosen.accumulate_grad_batches = 4;
    chosen.partial_window = partial;
    chosen.callbacks = {std::make_shared<LambdaCallback>(
        LambdaHooks{.on_train_batch_end = [&](StepContext& step, const TrainOutput&) {
          if (step.current_epoch() == 1 && step.batch_idx() == 4) step.save_checkpoint(saved);
        }})};
    Trainer(chosen).fit(testing::Slope(), batches(6));
    make_older(saved);
    chosen.callbacks.clear();
    testing::Slope resumed;
    Trainer(chosen).fit(resumed, batches(6), {}, saved);
    EXPECT_EQ(resumed->weight.item<double>(), partial == PartialWindow::kCarry ? -3 : -4);
  }
}

// Means of what begins anew count nothing twice.
TEST_F(Schedules, WindowsThatBeginAnewAreLoggedAnew) {
  struct Counted final : testing::SlopeImpl {
    torch::Tensor training_step(const Example&, StepContext& step) override {
      step.log("number", static_cast<double>(step.batch_idx()), {.on_epoch = true});
      return weight.sum();
    }
  };
  const auto saved = folder_ / "saved.ckpt";
  auto chosen = options();
  chosen.accumulate_grad_batches = 4;
  chosen.callbacks = {std::make_shared<LambdaCallback>(
      LambdaHooks{.on_train_batch_end = [&](StepContext& step, const TrainOutput&) {
        if (step.batch_idx() == 5) step.save_checkpoint(saved);
      }})};
  Trainer(chosen).fit(std::make_shared<Counted>(), batches(8));
  chosen.limit_train_batches = 7;  // too few for the window that the checkpoint holds half of
  chosen.callbacks.clear();
  Trainer trainer(chosen);
  trainer.fit(std::make_shared<Counted>(), batches(8), {}, saved);
  EXPECT_EQ(trainer.callback_metrics().at("number"), (4 + 5 + 6) / 3.0);
}

TEST_F(Schedules, ValidateAfterAFractionOfAnEpoch) {
  auto chosen = options(2);
  chosen.val_check_interval = 0.25;
  EXPECT_THAT(validations(chosen, 8), ElementsAre(2, 4, 6, 8, 10, 12, 14, 16));
}

// Lightning's vector: the last batch alone is no reason.
TEST_F(Schedules, ValidateAfterABatchThatDoesNotDivideTheEpoch) {
  auto chosen = options();
  chosen.val_check_interval = 3;
  EXPECT_THAT(validations(chosen, 10), ElementsAre(3, 6, 9));
}

TEST_F(Schedules, ValidateByBatchesAcrossEpochs) {
  auto chosen = options(6);
  chosen.val_check_interval = 3;
  chosen.check_val_every_n_epoch = std::nullopt;
  EXPECT_THAT(validations(chosen, 2), ElementsAre(3, 6, 9, 12));
}

TEST_F(Schedules, ValidateByTheClock) {
  auto chosen = options();
  chosen.val_check_interval = 1ms;
  chosen.callbacks = {std::make_shared<LambdaCallback>(
      LambdaHooks{.on_train_batch_start = [](StepContext&) { std::this_thread::sleep_for(5ms); }})};
  EXPECT_THAT(validations(chosen, 3), ElementsAre(1, 2, 3));
  model_->validated_after.clear();
  chosen.val_check_interval = 1h;
  EXPECT_THAT(validations(chosen, 3), ElementsAre());
}

// Lightning's: a time counts in the epochs that validate.
TEST_F(Schedules, ValidateByTheClockInEverySecondEpoch) {
  struct Slow final : Callback {
    void on_train_batch_start(StepContext&) override { std::this_thread::sleep_for(5ms); }
  };
  const auto every = [&](std::optional<int> epochs, std::chrono::milliseconds interval) {
    model_ = testing::Slope();
    auto chosen = options(4);
    chosen.val_check_interval = interval;
    chosen.check_val_every_n_epoch = epochs;
    chosen.callbacks = {std::make_shared<Slow>()};
    return validations(chosen, 2);
  };
  EXPECT_THAT(every(2, 1ms), ElementsAre(3, 4, 7, 8));
  EXPECT_THAT(every(std::nullopt, 1ms), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(every(2, 1h), ElementsAre());
}

TEST_F(Schedules, ValidateThreeTimesAnEpochWhereThirdsLeaveARest) {
  for (const std::int64_t epochs : {1, 2, 3}) {
    model_ = testing::Slope();
    auto chosen = options(epochs);
    chosen.val_check_interval = 1.0 / 3;
    const auto after = validations(chosen, 64);
    EXPECT_EQ(after.size(), static_cast<std::size_t>(3 * epochs));
    EXPECT_THAT(std::vector(after.begin(), after.begin() + 3), ElementsAre(21, 42, 63));
  }
}

TEST_F(Schedules, ValidateByMicroBatchesAcrossEpochs) {
  auto chosen = options(6);
  chosen.val_check_interval = 3;
  chosen.check_val_every_n_epoch = std::nullopt;
  chosen.accumulate_grad_batches = 2;
  EXPECT_THAT(validations(chosen, 2), ElementsAre(3, 6, 9, 12));
  model_ = testing::Slope();
  chosen.max_epochs = -1;
  chosen.max_steps = 6;
  Trainer(chosen).fit(model_, loader(std::make_shared<CountingStream>(112), {.batch_size = 1}), batches(1));
  EXPECT_THAT(model_->validated_after, ElementsAre(3, 6, 9, 12));
}

TEST_F(Schedules, IntervalsThatNeverComeAreRefused) {
  auto chosen = options();
  chosen.val_check_interval = 5;
  test::expect_error<ConfigError>([&] { validations(chosen, 4); },
                                  {"val_check_interval", "5", "4 batches", "check_val_every_n_epoch"});
  chosen.check_val_every_n_epoch = std::nullopt;
  chosen.val_check_interval = 0.5;
  test::expect_error<ConfigError>([&] { Trainer trainer(chosen); }, {"val_check_interval", "0.5"});
}

TEST_F(Schedules, MaxTimeStopsARun) {
  auto chosen = options(-1);
  chosen.max_time = 50ms;
  Trainer trainer(chosen);
  trainer.fit(model_, batches(10));
  EXPECT_GT(trainer.global_step(), 0);
}

// Gradients of 2^100 are infinite under scales of 2^28 and more.
TEST_F(Schedules, EachFitHasALossScaleOfItsOwn) {
  struct Steep : testing::SlopeImpl {
    torch::Tensor training_step(const Example&, StepContext&) override {
      return (weight * std::ldexp(1.0, 100)).sum();
    }
    Optimizers configure_optimizers() override { return {.optimizer = SGD{.lr = std::ldexp(1.0, -100)}}; }
  };
  auto chosen = options(1);
  chosen.precision = Fp16Mixed{.scaler = {.init_scale = std::ldexp(1.0, 30)}};
  Trainer trainer(chosen);
  for (int fit = 0; fit < 2; ++fit) {
    const auto model = std::make_shared<Steep>();
    trainer.fit(model, batches(8));
    EXPECT_EQ(model->weight.item<double>(), -5) << "fit " << fit;
  }
}

TEST_F(Schedules, ARunWhoseTimeWasOverTrainsNothingMore) {
  for (const std::string interval : {"step", "epoch"}) {
    auto chosen = options(-1);
    chosen.callbacks = {std::make_shared<Timer>(TimerOptions{.duration = 50ms, .interval = interval})};
    Trainer first(chosen);
    first.fit(model_, batches(10));
    first.save_checkpoint(folder_ / "over.ckpt");
    chosen.callbacks = {std::make_shared<Timer>(TimerOptions{.duration = 50ms, .interval = interval})};
    Trainer second(chosen);
    second.fit(model_, batches(10), std::optional<Loader<Example>>(), folder_ / "over.ckpt");
    EXPECT_EQ(second.global_step(), first.global_step());
  }
}

TEST_F(Schedules, ATimerKnowsWhatTheRunHasTaken) {
  auto chosen = options();
  const auto timer = std::make_shared<Timer>();
  chosen.callbacks = {timer};
  Trainer(chosen).fit(model_, batches(2), batches(1));
  EXPECT_GT(timer->time_elapsed().count(), 0);
  EXPECT_GE(timer->time_elapsed(), timer->time_elapsed(Stage::kValidate));
  EXPECT_FALSE(timer->time_remaining());
  Timer later({.duration = 1h});
  later.load_state(timer->state());
  EXPECT_NEAR(later.time_remaining()->count(), 3600 - timer->time_elapsed().count(), 1);
}

TEST_F(Schedules, AFastDevRunTriesEveryStageAndLeavesNothing) {
  auto chosen = options(9);
  chosen.fast_dev_run = 2;
  chosen.callbacks = {std::make_shared<ModelCheckpoint>()};
  chosen.enable_checkpointing = true;
  Trainer trainer(chosen);
  trainer.fit(model_, batches(5), batches(5));
  EXPECT_EQ(trainer.global_step(), 2);
  EXPECT_EQ(trainer.current_epoch(), 1);
  EXPECT_THAT(model_->validated_after, ElementsAre(2));
  EXPECT_EQ(trainer.predict(model_, batches(5)).size(), 2U);
  EXPECT_FALSE(std::filesystem::exists(run_dir() / "metrics.csv"));
  EXPECT_TRUE(std::filesystem::is_empty(run_dir() / "checkpoints"));
}

TEST_F(Schedules, AnErrorOfOverfittingNamesItsOption) {
  auto chosen = options();
  chosen.overfit_batches = 0.01;
  test::expect_error<ConfigError>([&] { Trainer(chosen).fit(model_, batches(6)); },
                                  {"overfit_batches", "0.01"});
}

TEST_F(Schedules, OverfittingSeesTheSameBatchesInOrder) {
  std::vector<float> seen;
  auto chosen = options(2);
  chosen.overfit_batches = 2;
  struct See : Callback {
    explicit See(std::vector<float>& all) : all_(all) {}
    void on_before_backward(StepContext&, const at::Tensor& loss) override {
      all_.push_back(loss.item<float>());
    }
    std::vector<float>& all_;
  };
  model_->weight.data().fill_(1);
  chosen.limit_val_batches = 0;
  struct Still : testing::SlopeImpl {
    Optimizers configure_optimizers() override { return {.optimizer = SGD{.lr = 1e-30}}; }
  };
  const auto still = std::make_shared<Still>();
  still->weight.data().fill_(1);
  chosen.callbacks = {std::make_shared<See>(seen)};
  Trainer(chosen).fit(still, loader(tensor_dataset(torch::arange(1.0F, 9.0F).view({8, 1})),
                                    {.batch_size = 1, .shuffle = true}));
  EXPECT_THAT(seen, ElementsAre(1, 2, 1, 2));
}

TEST_F(Schedules, BarebonesRefusesWhatItWouldSwitchOff) {
  auto chosen = options();
  chosen.barebones = true;
  chosen.profiler = "simple";
  test::expect_error<ConfigError>([&] { Trainer trainer(chosen); }, {"barebones", "profiler", "simple"});
  chosen.profiler = {};
  Trainer trainer(chosen);
  trainer.fit(model_, batches(2), batches(1));
  EXPECT_TRUE(trainer.callback_metrics().empty());
  EXPECT_TRUE(std::filesystem::is_empty(run_dir() / "checkpoints"));
}

// The flag is for programs that are as they are: what they bring to save, log and draw is left out.
TEST_F(Schedules, BarebonesLeavesOutCallbacksThatSaveLogAndDraw) {
  auto chosen = options();
  chosen.barebones = true;
  int batches_seen = 0;
  const auto checkpoint = std::make_shared<ModelCheckpoint>();
  chosen.callbacks = {checkpoint, std::make_shared<TQDMProgressBar>(), std::make_shared<ModelSummary>(),
                      std::make_shared<LearningRateMonitor>(),
                      std::make_shared<LambdaCallback>(
                          LambdaHooks{.on_train_batch_start = [&](StepContext&) { ++batches_seen; }})};
  Trainer trainer(chosen);
  trainer.fit(model_, batches(2), batches(1));
  EXPECT_EQ(batches_seen, 2);
  EXPECT_EQ(trainer.checkpoint_callback(), nullptr);
  EXPECT_TRUE(checkpoint->best_model_path().empty());
  EXPECT_TRUE(std::filesystem::is_empty(run_dir() / "checkpoints"));
  chosen.barebones = false;
  chosen.enable_checkpointing = false;
  test::expect_error<ConfigError>([&] { Trainer refused(chosen); },
                                  {"enable_checkpointing", "ModelCheckpoint"});
}

TEST_F(Schedules, PredictionsComeBatchByBatch) {
  Trainer trainer(options());
  const auto predictions = trainer.predict(model_, batches(3));
  ASSERT_EQ(predictions.size(), 3U);
  EXPECT_EQ(predictions[2].item<float>(), 2);
  EXPECT_TRUE(trainer.predict(model_, batches(3), "", false).empty());
}

// A data module that says what is asked of it.
struct TellingData : DataModule<Example> {
  explicit TellingData(std::vector<std::string>& told) : told_(told) {}
  void prepare_data() override { told_.push_back("prepare_data"); }
  void setup(Stage stage) override { told_.push_back("setup " + std::string(stage_name(stage))); }
  void teardown(Stage stage) override { told_.push_back("teardown " + std::string(stage_name(stage))); }
  std::optional<Loader<Example>> train_dataloader() override { return batches(2); }
  std::optional<Loader<Example>> val_dataloader() override { return batches(1); }
  std::optional<Loader<Example>> predict_dataloader() override { return batches(3); }
  static Loader<Example> batches(std::int64_t count) {
    return loader(tensor_dataset(torch::ones({count, 1})), {.batch_size = 1});
  }
  std::vector<std::string>& told_;
};

TEST_F(Schedules, ADataModuleIsSetUpAndTornDown) {
  std::vector<std::string> told;
  const auto data = std::make_shared<TellingData>(told);
  Trainer trainer(options());
  trainer.fit(model_, data);
  EXPECT_EQ(trainer.global_step(), 2);
  EXPECT_THAT(model_->validated_after, ElementsAre(2));
  EXPECT_EQ(trainer.predict(model_, data).size(), 3U);
  EXPECT_THAT(told, ElementsAre("prepare_data", "setup fit", "teardown fit", "prepare_data", "setup predict",
                                "teardown predict"));
  test::expect_error<ConfigError>([&] { trainer.test(model_, data); }, {"data module", "test"});
}

TEST_F(Schedules, AStreamTellsItsLengthAtItsEnd) {
  const auto stream = loader(std::make_shared<CountingStream>(5), {.batch_size = 1});
  auto chosen = options(2);
  chosen.accumulate_grad_batches = 2;
  Trainer trainer(chosen);
  trainer.fit(model_, stream, batches(1));
  EXPECT_EQ(trainer.current_epoch(), 2);
  EXPECT_EQ(trainer.global_step(), 2 * 3);  // windows of 2, 2 and 1
  EXPECT_THAT(model_->validated_after, ElementsAre(5, 10));
}

TEST_F(Schedules, FractionsOfAStreamAreRefused) {
  const auto stream = loader(std::make_shared<CountingStream>(5), {.batch_size = 1});
  auto chosen = options();
  chosen.val_check_interval = 0.5;
  test::expect_error<ConfigError>([&] { Trainer(chosen).fit(model_, stream, batches(1)); },
                                  {"val_check_interval", "0.5", "1.0"});
  chosen.val_check_interval = 2;
  chosen.limit_train_batches = 0.5;
  test::expect_error<ConfigError>([&] { Trainer(chosen).fit(model_, stream, batches(1)); },
                                  {"limit_train_batches", "0.5"});
  chosen.limit_train_batches = 3;
  Trainer trainer(chosen);
  trainer.fit(model_, stream, batches(1));
  EXPECT_EQ(trainer.global_step(), 3);
}

// What ends a run of two ranks, which write no rows: `argument` is it, and a folder.
LOCKSTEP_RANK_BODY(stops_without_rows)(Communicator comm, std::string argument)->std::string {
  testing::become_trainer_rank(comm);
  const auto space = argument.find(' ');
  TrainerOptions options{.max_epochs = 1, .num_sanity_val_steps = 0, .log_every_n_steps = 0};
  options.enable_progress_bar = options.enable_model_summary = false;
  options.strategy = Ddp{};
  options.devices = 2;
  options.run.run_dir = argument.substr(space + 1);
  testing::Slope model;
  model->losses = {1};
  const auto rank = comm.rank();
  const bool by_time = argument.starts_with("time");
  if (by_time) options.max_time = 300ms;
  if (argument.starts_with("early")) {
    options.val_check_interval = 2;
    options.callbacks = {std::make_shared<EarlyStopping>(
        EarlyStoppingOptions{.monitor = "val_loss", .patience = 1, .check_on_train_epoch_end = false})};
  }
  options.callbacks.push_back(std::make_shared<LambdaCallback>(
      LambdaHooks{.on_train_start =
                      [&](TrainContext& context) {
                        if (argument.starts_with("start") && rank == 1) context.stop();
                      },
                  .on_train_batch_end =
                      [&](StepContext& step, const TrainOutput&) {
                        if (by_time) std::this_thread::sleep_for(10ms);
                        if (argument.starts_with("wish") && rank == 1 && step.batch_idx() == 9) step.stop();
                      }}));
  const auto rows = [](std::int64_t count) {
    return loader(tensor_dataset(torch::ones({count, 1})), {.batch_size = 1});
  };
  Trainer trainer(options);
  trainer.fit(model, rows(by_time ? 1600 : 400), rows(2));
  return std::to_string(trainer.global_step()) + " " + std::to_string(model->validated_after.size());
}

class StopsOfRanks : public Schedules {
 protected:
  std::string run(const std::string& reason) {
    const auto ranks = testing::fork_ranks(2, "stops_without_rows", reason + " " + folder_.path().string());
    EXPECT_EQ(ranks[0].result, ranks[1].result);
    EXPECT_EQ(ranks[0].error, "");
    return ranks[0].result;
  }
};

TEST_F(StopsOfRanks, ComeWithoutRowsOfMetrics) {
  EXPECT_LT(std::stoi(run("time")), 700);
  EXPECT_EQ(run("wish"), "50 1");  // the validation of a run that ends
  EXPECT_EQ(run("early"), "4 2");
  EXPECT_EQ(run("start"), "0 0") << "before the first step";
}

}  // namespace
}  // namespace lockstep
