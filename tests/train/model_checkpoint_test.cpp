// Which checkpoints a fit keeps, and under which names: Lightning's vectors.
#include <gmock/gmock.h>

#include "support/decimal_comma.h"
#include "support/expect_error.h"
#include "train/model_checkpoint_fit.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::ModelCheckpointTest;

std::string name(ModelCheckpointOptions options, const Metrics& metrics, int epoch, int step) {
  return ModelCheckpoint(std::move(options)).format_checkpoint_name(metrics, epoch, step);
}

TEST(CheckpointNames, AreLightnings) {
  EXPECT_EQ(name({}, {}, 3, 2), "epoch=3-step=2.ckpt");
  EXPECT_EQ(name({.filename = "{epoch:02d}-{acc:.1f}"}, {{"acc", 0.934}}, 3, 2), "epoch=03-acc=0.9.ckpt");
  EXPECT_EQ(
      name({.filename = "{epoch:02d}-{acc:.1f}", .auto_insert_metric_name = false}, {{"acc", 0.934}}, 3, 2),
      "03-0.9.ckpt");
  EXPECT_EQ(name({.filename = "{val/loss:.2e}_x"}, {{"val/loss", 0.0123}}, 0, 0), "val/loss=1.23e-02_x.ckpt");
  EXPECT_EQ(name({.filename = "{missing:.3f}"}, {}, 0, 0), "missing=0.000.ckpt");
  EXPECT_EQ(name({.filename = "constant"}, {}, 3, 2), "constant.ckpt");
  EXPECT_EQ(name({.filename = "{epoch:03d}-{epoch_test:03d}"}, {{"epoch_test", 3}}, 3, 2),
            "epoch=003-epoch_test=003.ckpt");
  EXPECT_EQ(name({.filename = "epoch={epoch:03d}-val_acc={val/acc}", .auto_insert_metric_name = false},
                 {{"val/acc", 0.03}}, 3, 2),
            "epoch=003-val_acc=0.03.ckpt");
  EXPECT_EQ(name({.filename = "mAP@0.50={val/mAP@0.50:.4f}", .auto_insert_metric_name = false},
                 {{"val/mAP@0.50", 0.2}}, 3, 2),
            "mAP@0.50=0.2000.ckpt");
  EXPECT_EQ(name({.filename = "{loss}"}, {{"loss", 0.25}}, 0, 0), "loss=0.25.ckpt");
  EXPECT_EQ(name({.filename = "{missing}"}, {}, 0, 0), "missing=0.ckpt");
}

TEST(CheckpointNames, HaveAPointInEveryLocale) {
  const test::DecimalComma locale;
  ASSERT_TRUE(locale.is_there());
  EXPECT_EQ(name({.filename = "{acc:.1f}"}, {{"acc", 0.934}}, 3, 2), "acc=0.9.ckpt");
}

// A metric may have any name; the file is inside of the folder for checkpoints all the same.
TEST(CheckpointNames, LeadNowhereElse) {
  EXPECT_EQ(name({.filename = "{../../x:.0f}"}, {{"../../x", 1}}, 0, 0), "__/__/x=1.ckpt");
  EXPECT_EQ(name({.filename = "{epoch}-{/x}-{a/./b}-{a//b}-{..}-{a/..}-{...}"}, {}, 3, 0),
            "epoch=3-_/x=0-a/_/b=0-a/_/b=0-__=0-a/__=0-...=0.ckpt");
  EXPECT_EQ(name({.filename = "{../../x:.0f}", .auto_insert_metric_name = false}, {{"../../x", 1}}, 0, 0),
            "1.ckpt");
  EXPECT_EQ(name({.filename = "a/../{epoch}"}, {}, 0, 0), "a/../epoch=0.ckpt");
  for (const char* out : {"../{epoch}", "/tmp/{epoch}", "a/../../{epoch}", "{a/b}/../../../x"})
    test::expect_error<ConfigError>([&] { name({.filename = out}, {}, 0, 0); }, {"filename", out, "dirpath"});
}

TEST_F(ModelCheckpointTest, AMetricWhoseNameIsAPathStaysInTheFolder) {
  struct Logs final : Callback {
    void on_train_batch_end(StepContext& step, const TrainOutput&) override { step.log("../../x", 1.0); }
  };
  auto chosen = options();
  chosen.callbacks = {std::make_shared<Logs>()};
  fit(chosen, {.filename = "{../../x:.0f}-{step}", .monitor = "../../x", .save_top_k = -1}, 2);
  EXPECT_THAT(kept(), ElementsAre("__/__/x=1-step=2.ckpt"));
  for (const auto& entry : fs::directory_iterator(folder_.path())) EXPECT_EQ(entry.path(), run_dir());
}

// What Python's format() makes of them.
TEST(CheckpointNames, NumbersAreWrittenAsPythonDoes) {
  const auto written = [](const std::string& spec, double value) {
    const auto text =
        name({.filename = "{x" + spec + "}", .auto_insert_metric_name = false}, {{"x", value}}, 0, 0);
    return text.substr(0, text.size() - 5);
  };
  for (const auto& [value, text] :
       std::vector<std::pair<double, std::string>>{{3, "3.0"},
                                                   {-2, "-2.0"},
                                                   {0, "0.0"},
                                                   {100000, "100000.0"},
                                                   {0.0001, "0.0001"},
                                                   {0.00001, "1e-05"},
                                                   {1.5e-7, "1.5e-07"},
                                                   {123456789012345680.0, "1.2345678901234568e+17"},
                                                   {1e16, "1e+16"},
                                                   {1234567890123456.0, "1234567890123456.0"},
                                                   {0.30000001192092896, "0.30000001192092896"},
                                                   {1e300, "1e+300"},
                                                   {INFINITY, "inf"},
                                                   {-INFINITY, "-inf"},
                                                   {NAN, "nan"}})
    EXPECT_EQ(written("", value), text);
  EXPECT_EQ(written(":.2", 12.34), "1.2e+01");
  EXPECT_EQ(written(":.3", 12.34), "12.3");
  EXPECT_EQ(written(":.3", 3), "3.0");
  EXPECT_EQ(written(":.0", 3), "3e+00");
  EXPECT_EQ(written(":.999", 0.5), "0.5");
  EXPECT_EQ(written(":6", 3), "   3.0");
  EXPECT_EQ(written(":06", -3), "-003.0");
  EXPECT_EQ(name({.filename = "{step:08}"}, {}, 0, 1234567), "step=01234567.ckpt");
}

TEST(CheckpointNames, BadTemplatesAreRefused) {
  test::expect_error<ConfigError>([] { name({.filename = "{epoch"}, {}, 0, 0); },
                                  {"filename", "{epoch", "}"});
  for (const char* spec : {"{loss:s}", "{loss:.2q}", "{loss:%n}", "{loss:9999f}", "{loss:.2f.}"})
    test::expect_error<ConfigError>([&] { name({.filename = spec}, {}, 0, 0); }, {"filename"});
}

TEST(ModelCheckpointOptions, AreChecked) {
  const auto refused = [](ModelCheckpointOptions options, std::vector<std::string> parts) {
    test::expect_error<ConfigError>([&] { ModelCheckpoint callback(options); }, parts);
  };
  refused({.save_top_k = -2}, {"save_top_k", "-2", ">= -1"});
  refused({.save_top_k = 3}, {"save_top_k", "monitor", "3"});
  refused({.every_n_train_steps = 1, .every_n_epochs = 1}, {"every_n_train_steps", "2 of them"});
  refused({.every_n_train_steps = 1, .train_time_interval = std::chrono::seconds(1)}, {"2 of them"});
  refused({.train_time_interval = std::chrono::seconds(1), .every_n_epochs = 1}, {"2 of them"});
  refused({.every_n_epochs = -1}, {"every_n_epochs", "-1"});
  refused({.every_n_train_steps = -1}, {"every_n_train_steps", "-1"});
}

TEST_F(ModelCheckpointTest, KeepsTheLatestEpochWhereNothingIsSaid) {
  Trainer trainer(options(3));
  trainer.fit(model_, batches(2));
  EXPECT_THAT(kept(), ElementsAre("epoch=2-step=6.ckpt"));
  EXPECT_EQ(trainer.checkpoint_callback()->best_model_path(),
            run_dir() / "checkpoints" / "epoch=2-step=6.ckpt");
}

// Counts what is written.
struct Counting final : CheckpointIO {
  void save(const fs::path& folder, const CheckpointState& state, const CheckpointInfo& info,
            const Communicator& communicator) override {
    ++saves;
    CheckpointIO::save(folder, state, info, communicator);
  }
  int saves = 0;
};

// Lightning's: (save_top_k, epochs, val_check_interval) -> saves, where each value is better than all before;
// and the Trainer's own last.ckpt.
TEST_F(ModelCheckpointTest, SavesTheBestAsOftenAsLightning) {
  const std::vector<std::tuple<int, int, double, int>> vectors{
      {1, 1, 1.0, 1}, {2, 2, 1.0, 2}, {1, 2, 0.25, 8}, {2, 2, 0.3, 6}};
  for (const auto& [top_k, epochs, interval, saves] : vectors) {
    for (const auto last : {SaveLast::kFalse, SaveLast::kTrue, SaveLast::kLink}) {
      fs::remove_all(run_dir());
      model_ = testing::Slope();
      model_->losses = {9, 8, 7, 6, 5, 4, 3, 2};
      const auto io = std::make_shared<Counting>();
      auto chosen = options(epochs);
      chosen.val_check_interval = interval;
      chosen.plugins = {io};
      fit(chosen, {.monitor = "val_loss", .save_last = last, .save_top_k = top_k}, 64);
      EXPECT_EQ(io->saves, (last == SaveLast::kTrue ? 2 : 1) * saves + 1) << top_k << " " << interval;
      EXPECT_EQ(kept().size(), static_cast<std::size_t>(std::min(saves, top_k)));
    }
  }
}

// Lightning's: (epochs, val_check_interval) -> saves with save_top_k = -1.
TEST_F(ModelCheckpointTest, SavesAsOftenAsLightning) {
  const std::vector<std::tuple<int, double, std::size_t>> vectors{
      {1, 1.0, 1}, {2, 1.0, 2}, {1, 0.25, 4}, {2, 0.3, 6}};
  for (const auto& [epochs, interval, saves] : vectors) {
    fs::remove_all(run_dir());
    auto chosen = options(epochs);
    chosen.val_check_interval = interval;
    fit(chosen, {.save_top_k = -1}, 64);
    EXPECT_EQ(kept().size(), saves) << epochs << " epochs, " << interval;
  }
}

TEST_F(ModelCheckpointTest, SavesEveryNEpochs) {
  for (const std::int64_t every : {0, 1, 2, 3}) {
    fs::remove_all(run_dir());
    fit(options(5), {.filename = "{epoch}", .save_top_k = -1, .every_n_epochs = every}, 1);
    std::vector<std::string> expected;
    for (std::int64_t epoch = 0; epoch < 5; ++epoch)
      if (every > 0 && (epoch + 1) % every == 0)
        expected.push_back("epoch=" + std::to_string(epoch) + ".ckpt");
    EXPECT_EQ(kept(), expected) << every;
  }
}

TEST_F(ModelCheckpointTest, SavesWithValidationsUnlessToldOtherwise) {
  auto chosen = options(5);
  chosen.check_val_every_n_epoch = 2;
  fit(chosen, {.filename = "{epoch}", .monitor = "epoch", .save_top_k = -1}, 1);
  EXPECT_THAT(kept(), ElementsAre("epoch=1.ckpt", "epoch=3.ckpt"));
  for (const bool at_epoch_end : {false, true}) {
    fs::remove_all(run_dir());
    chosen = options();
    chosen.val_check_interval = 0.5;
    fit(chosen, {.filename = "{step}", .save_top_k = -1, .save_on_train_epoch_end = at_epoch_end});
    if (at_epoch_end)
      EXPECT_THAT(kept(), ElementsAre("step=4.ckpt"));
    else
      EXPECT_THAT(kept(), ElementsAre("step=2.ckpt", "step=4.ckpt"));
  }
}

TEST_F(ModelCheckpointTest, EpochAndStepCanAlwaysBeMonitored) {
  for (const std::string monitor : {"epoch", "step"}) {
    fs::remove_all(run_dir());
    const auto callback =
        fit(options(3), {.monitor = monitor, .save_top_k = -1, .mode = MonitorMode::kMax}, 1);
    EXPECT_EQ(callback->best_model_score(), monitor == "epoch" ? 2 : 3);
    EXPECT_EQ(callback->best_model_path().filename(), "epoch=2-step=3.ckpt");
    EXPECT_EQ(callback->best_k_models().size(), 3U);
  }
}

// What is called so stands in for the Trainer's own number, also in names.
TEST_F(ModelCheckpointTest, ALoggedEpochOrStepIsWhatIsMonitored) {
  struct Logs final : Callback {
    void on_train_epoch_end(TrainContext& context) override {
      context.log("epoch", 10.0 - static_cast<double>(context.current_epoch()));
      context.log("step", 7.5);
    }
  };
  auto chosen = options(3);
  const auto stopping = std::make_shared<EarlyStopping>(
      EarlyStoppingOptions{.monitor = "step", .patience = 2, .check_on_train_epoch_end = true});
  chosen.callbacks = {std::make_shared<Logs>(), stopping};
  const auto callback = fit(chosen, {.monitor = "epoch", .mode = MonitorMode::kMax}, 1);
  EXPECT_EQ(callback->best_model_score(), 10);
  EXPECT_EQ(callback->best_model_path().filename(), "epoch=10-step=7.ckpt");
  EXPECT_EQ(stopping->best_score(), 7.5);
  EXPECT_EQ(stopping->wait_count(), 2);
}

TEST_F(ModelCheckpointTest, ANaNThatComesFirstIsReplaced) {
  const double nan = std::nan("");
  const auto best_of = [&](std::vector<double> losses, MonitorMode mode) {
    fs::remove_all(run_dir());
    model_ = testing::Slope();
    model_->losses = std::move(losses);
    const auto epochs = static_cast<std::int64_t>(model_->losses.size());
    return fit(options(epochs), {.monitor = "val_loss", .mode = mode}, 1)->best_model_score();
  };
  EXPECT_EQ(best_of({nan, 8, 7, 5}, MonitorMode::kMin), 5);
  EXPECT_EQ(best_of({nan, 5, 7, 8}, MonitorMode::kMax), 8);
  EXPECT_EQ(best_of({nan, nan}, MonitorMode::kMin), std::numeric_limits<double>::infinity());
  EXPECT_EQ(best_of({nan, nan}, MonitorMode::kMax), -std::numeric_limits<double>::infinity());
}

TEST_F(ModelCheckpointTest, KeepsTheBest) {
  model_->losses = {5, 3, 4, 2, 6};
  const auto callback =
      fit(options(5), {.filename = "{epoch}-{val_loss}", .monitor = "val_loss", .save_top_k = 2}, 1);
  EXPECT_THAT(kept(), ElementsAre("epoch=1-val_loss=3.0.ckpt", "epoch=3-val_loss=2.0.ckpt"));
  EXPECT_EQ(callback->best_model_path().filename(), "epoch=3-val_loss=2.0.ckpt");
  EXPECT_EQ(callback->best_model_score(), 2);
  EXPECT_EQ(callback->best_k_models().size(), 2U);
}

TEST_F(ModelCheckpointTest, LargerCanBeBetterAndNaNIsWorst) {
  model_->losses = {1, std::nan(""), 3, 2};
  const auto callback =
      fit(options(4), {.monitor = "val_loss", .save_top_k = 1, .mode = MonitorMode::kMax}, 1);
  EXPECT_THAT(kept(), ElementsAre("epoch=2-step=3.ckpt"));
  EXPECT_EQ(callback->best_model_score(), 3);
}

TEST_F(ModelCheckpointTest, SavesEveryNSteps) {
  fit(options(), {.save_top_k = -1, .every_n_train_steps = 3}, 10);
  EXPECT_THAT(kept(), ElementsAre("epoch=0-step=3.ckpt", "epoch=0-step=6.ckpt", "epoch=0-step=9.ckpt"));
}

// The name's loss is that of the validation behind the step, not of the one before it.
TEST_F(ModelCheckpointTest, WaitsForTheValidationThatComesWithTheStep) {
  model_->losses = {5, 3};
  auto chosen = options();
  chosen.val_check_interval = 2;
  fit(chosen,
      {.filename = "{step}-{val_loss}", .monitor = "val_loss", .save_top_k = -1, .every_n_train_steps = 2});
  EXPECT_THAT(kept(), ElementsAre("step=2-val_loss=5.0.ckpt", "step=4-val_loss=3.0.ckpt"));
}

TEST_F(ModelCheckpointTest, SavesByTheClock) {
  fit(options(), {.save_top_k = -1, .train_time_interval = std::chrono::hours(1)});
  EXPECT_THAT(kept(), IsEmpty());
  fit(options(), {.save_top_k = -1, .train_time_interval = std::chrono::milliseconds(0)});
  EXPECT_EQ(kept().size(), 4U);
}

TEST_F(ModelCheckpointTest, TakenNamesGetVersions) {
  fit(options(3), {.filename = "same", .save_top_k = -1}, 1);
  EXPECT_THAT(kept(), ElementsAre("same-v1.ckpt", "same-v2.ckpt", "same.ckpt"));
  fs::remove_all(run_dir());
  fit(options(3), {.filename = "same", .save_top_k = -1, .enable_version_counter = false}, 1);
  EXPECT_THAT(kept(), ElementsAre("same.ckpt"));
}

TEST_F(ModelCheckpointTest, LastIsACopyOrALinkOfTheLatest) {
  auto chosen = options(2);
  const fs::path dirpath = folder_ / "kept";
  auto callback = fit(chosen, {.dirpath = dirpath, .save_last = SaveLast::kLink}, 1);
  EXPECT_EQ(fs::read_symlink(dirpath / "last.ckpt"), "epoch=1-step=2.ckpt");
  EXPECT_EQ(Checkpoint(dirpath / "last.ckpt").info().global_step, 2);
  callback = fit(chosen, {.dirpath = folder_ / "copied", .save_last = SaveLast::kTrue}, 1);
  EXPECT_EQ(callback->last_model_path(), folder_ / "copied" / "last.ckpt");
  EXPECT_EQ(Checkpoint(callback->last_model_path()).info().global_step, 2);
}

TEST_F(ModelCheckpointTest, WeightsAloneCannotBeResumedFrom) {
  const auto callback = fit(options(), {.save_weights_only = true}, 1);
  Trainer trainer(options(2));
  test::expect_error<CheckpointError>(
      [&] { trainer.fit(model_, batches(1), {}, callback->best_model_path().string()); }, {"weights only"});
}

TEST_F(ModelCheckpointTest, AMonitorThatNobodyLogsIsRefusedByName) {
  test::expect_error<ConfigError>([&] { fit(options(), {.monitor = "val_los"}); }, {"val_los", "train_loss"});
}

TEST_F(ModelCheckpointTest, BestIsWhatATestTakes) {
  model_->losses = {1, 2};
  auto chosen = options(2);
  chosen.callbacks = {std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.monitor = "val_loss"})};
  Trainer trainer(chosen);
  trainer.fit(model_, batches(1), batches(1));
  EXPECT_EQ(model_->weight.item<float>(), -2);
  trainer.test(model_, batches(1), "best");
  EXPECT_EQ(model_->weight.item<float>(), -1);
  Trainer other(options());
  test::expect_error<ConfigError>([&] { other.test(model_, batches(1), "best"); }, {"best", "nothing"});
}

TEST_F(ModelCheckpointTest, ATrainerThatKnowsNoBestYetCanStillBeUsed) {
  model_->losses = {1, 2};
  auto chosen = options(2);
  chosen.callbacks = {std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.monitor = "val_loss"})};
  Trainer trainer(chosen);
  test::expect_error<ConfigError>([&] { trainer.validate(model_, batches(1), "best"); }, {"best", "nothing"});
  test::expect_error<ConfigError>([&] { trainer.fit(model_, batches(1), batches(1), "best"); },
                                  {"best", "nothing"});
  trainer.validate(model_, batches(1));
  trainer.fit(model_, batches(1), batches(1));
  trainer.test(model_, batches(1), "best");
  EXPECT_EQ(model_->weight.item<float>(), -1);
}

TEST_F(ModelCheckpointTest, BestIsWhatAnotherFitOfTheTrainerGoesOnFrom) {
  model_->losses = {1, 2};
  auto chosen = options(2);
  chosen.callbacks = {std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.monitor = "val_loss"})};
  Trainer trainer(chosen);
  trainer.fit(model_, batches(1), batches(1));
  model_->training_steps = 0;
  trainer.fit(model_, batches(1), batches(1), "best");
  EXPECT_EQ(model_->training_steps, 1);
  EXPECT_EQ(model_->weight.item<float>(), -2);
}

// What is best is known to the run that goes on.
TEST_F(ModelCheckpointTest, AResumedRunKnowsTheBest) {
  model_->losses = {2, 5, 4};
  const ModelCheckpointOptions wanted{.monitor = "val_loss", .save_top_k = 2};
  fit(options(2), wanted, 1);
  EXPECT_THAT(kept(), ElementsAre("epoch=0-step=1.ckpt", "epoch=1-step=2.ckpt"));
  auto chosen = options(3);
  chosen.run.ckpt_path = (run_dir() / "checkpoints" / "last.ckpt").string();
  const auto callback = fit(chosen, wanted, 1);
  EXPECT_EQ(callback->best_model_score(), 2);
  EXPECT_THAT(kept(), ElementsAre("epoch=0-step=1.ckpt", "epoch=2-step=3.ckpt"));
}

TEST_F(ModelCheckpointTest, IsNotGivenWhereCheckpointsAreOff) {
  auto chosen = options();
  chosen.enable_checkpointing = false;
  chosen.callbacks = {std::make_shared<ModelCheckpoint>()};
  test::expect_error<ConfigError>([&] { Trainer trainer(chosen); },
                                  {"enable_checkpointing", "ModelCheckpoint"});
}

TEST_F(ModelCheckpointTest, OldOnesGoAfterNewOnesWereWrittenInTheBackground) {
  auto chosen = options(4);
  chosen.async_checkpoint = true;
  fit(chosen, {}, 1);
  EXPECT_THAT(kept(), ElementsAre("epoch=3-step=4.ckpt"));
}

}  // namespace
}  // namespace lockstep
