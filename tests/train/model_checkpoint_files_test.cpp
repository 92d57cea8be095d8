// Which files ModelCheckpoint leaves alone, replaces and removes.
#include <fstream>

#include <gmock/gmock.h>

#include "support/expect_error.h"
#include "train/model_checkpoint_fit.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ModelCheckpointTest;

// Logs its values as val_acc, one in each epoch.
struct Accuracy final : Callback {
  explicit Accuracy(std::vector<double> values_) : values(std::move(values_)) {}
  void on_validation_epoch_end(TrainContext& context) override {
    context.log("val_acc", values.at(static_cast<std::size_t>(context.current_epoch())));
  }
  std::vector<double> values;
};

TEST_F(ModelCheckpointTest, TwoInOneFolderDoNotTakeEachOthersNames) {
  model_->losses = {3, 2, 1};
  const auto by_loss = std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.monitor = "val_loss"});
  const auto by_accuracy = std::make_shared<ModelCheckpoint>(
      ModelCheckpointOptions{.monitor = "val_acc", .mode = MonitorMode::kMax});
  auto chosen = options(3);
  chosen.callbacks = {std::make_shared<Accuracy>(std::vector{0.9, 0.5, 0.4}), by_loss, by_accuracy};
  Trainer trainer(chosen);
  trainer.fit(model_, batches(1), batches(1));
  EXPECT_EQ(trainer.checkpoint_callback(), by_loss.get());
  EXPECT_THAT(kept(), ElementsAre("epoch=0-step=1-v1.ckpt", "epoch=2-step=3.ckpt"));
  EXPECT_EQ(by_accuracy->best_model_path(), checkpoints() / "epoch=0-step=1-v1.ckpt");
  EXPECT_EQ(by_loss->best_model_path(), checkpoints() / "epoch=2-step=3.ckpt");
}

TEST_F(ModelCheckpointTest, TwoUnderOneNameAreRefused) {
  const ModelCheckpointOptions wanted{.filename = "same", .enable_version_counter = false};
  auto chosen = options();
  chosen.callbacks = {std::make_shared<ModelCheckpoint>(wanted)};
  test::expect_error<ConfigError>([&] { fit(chosen, wanted); }, {"enable_version_counter", "same.ckpt"});
}

// The end of fit would take the place of the best.
TEST_F(ModelCheckpointTest, TheNameOfTheTrainersLastIsRefused) {
  model_->losses = {1, 2, 3, 4};
  ModelCheckpointOptions wanted{.filename = "last", .monitor = "val_loss"};
  test::expect_error<ConfigError>([&] { fit(options(4), wanted, 1); }, {"filename", "last", "dirpath"});
  wanted.dirpath = run_dir() / "logs" / ".." / "checkpoints";
  EXPECT_THROW(fit(options(4), wanted, 1), ConfigError);
  wanted.dirpath = folder_ / "best";
  const auto callback = fit(options(4), wanted, 1);
  EXPECT_EQ(Checkpoint(callback->best_model_path()).info().global_step, 1);
  wanted.save_last = SaveLast::kTrue;
  EXPECT_THROW(fit(options(4), wanted, 1), ConfigError);
}

TEST_F(ModelCheckpointTest, ALinkInTheDefaultFolderGivesWayToTheTrainersLast) {
  const auto callback = fit(options(2), {.save_last = SaveLast::kLink}, 1);
  EXPECT_FALSE(fs::is_symlink(checkpoints() / "last.ckpt"));
  EXPECT_EQ(Checkpoint(checkpoints() / "last.ckpt").info().global_step, 2);
  EXPECT_EQ(Checkpoint(callback->best_model_path()).info().global_step, 2);
  auto chosen = options(3);  // over a checkpoint, and over a link again
  chosen.run.ckpt_path = "last";
  fit(chosen, {.save_last = SaveLast::kLink}, 1);
  EXPECT_EQ(Checkpoint(checkpoints() / "last.ckpt").info().global_step, 3);
}

TEST_F(ModelCheckpointTest, ALinkToWhereACheckpointWasIsReplaced) {
  fs::create_directories(checkpoints());
  fs::create_directory_symlink("gone.ckpt", checkpoints() / "last.ckpt");
  fit(options(), {}, 1);
  EXPECT_EQ(Checkpoint(checkpoints() / "last.ckpt").info().global_step, 1);
}

TEST_F(ModelCheckpointTest, ALinkToSomethingElseIsLeftAlone) {
  fs::create_directories(checkpoints());
  fs::create_directories(folder_ / "mine");
  std::ofstream(folder_ / "mine" / "notes") << "mine";
  fs::create_directory_symlink(folder_ / "mine", checkpoints() / "last.ckpt");
  EXPECT_THROW(fit(options(), {}, 1), IoError);
  EXPECT_TRUE(fs::exists(checkpoints() / "last.ckpt" / "notes"));
}

// The hooks of those that monitor come later, but at the same moment.
TEST_F(ModelCheckpointTest, IsNotAskedAgainAfterACheckpointOfTheSameMoment) {
  struct EpochSaver final : Callback {
    explicit EpochSaver(fs::path path_) : path(std::move(path_)) {}
    void on_train_epoch_end(TrainContext& context) override {
      if (context.current_epoch() == 1) context.save_checkpoint(path);
    }
    fs::path path;
  };
  auto chosen = options(2);
  chosen.callbacks = {std::make_shared<EpochSaver>(folder_ / "own.ckpt")};
  fit(chosen, {.save_top_k = -1}, 1);
  chosen = options(3);
  chosen.run.ckpt_path = (folder_ / "own.ckpt").string();
  fit(chosen, {.save_top_k = -1}, 1);
  EXPECT_THAT(kept(), ElementsAre("epoch=0-step=1.ckpt", "epoch=1-step=2.ckpt", "epoch=2-step=3.ckpt"));
}

TEST_F(ModelCheckpointTest, LastAloneIsSavedWhereNothingElseIs) {
  const fs::path dirpath = folder_ / "kept";
  for (const auto last : {SaveLast::kTrue, SaveLast::kLink}) {
    fs::remove_all(dirpath);
    const auto callback = fit(options(2), {.dirpath = dirpath, .save_last = last, .save_top_k = 0}, 1);
    EXPECT_THAT(kept(dirpath), IsEmpty());
    EXPECT_TRUE(callback->best_model_path().empty());
    EXPECT_EQ(callback->last_model_path(), dirpath / "last.ckpt");
    EXPECT_EQ(Checkpoint(dirpath / "last.ckpt").info().global_step, 2);
  }
  EXPECT_TRUE(fit(options(), {.save_top_k = 0}, 1)->last_model_path().empty());
}

TEST_F(ModelCheckpointTest, LastIsOfTheLastThatWasSaved) {
  model_->losses = {1, 2, 0.5, 3};
  const fs::path dirpath = folder_ / "kept";
  fit(options(4), {.dirpath = dirpath, .monitor = "val_loss", .save_last = SaveLast::kTrue}, 1);
  EXPECT_EQ(Checkpoint(dirpath / "last.ckpt").info().global_step, 3);
}

TEST_F(ModelCheckpointTest, TheOneThatARunGoesOnFromIsKept) {
  const auto run = [&](std::int64_t max_steps, const fs::path& dirpath, const std::string& from) {
    auto chosen = options(-1);
    chosen.max_steps = max_steps;
    chosen.run.ckpt_path = from;
    fit(chosen,
        {.dirpath = dirpath,
         .filename = "{step}",
         .monitor = "step",
         .save_top_k = 2,
         .mode = MonitorMode::kMax,
         .every_n_train_steps = 2},
        100);
  };
  const fs::path first = folder_ / "first", second = folder_ / "second";
  run(5, first, {});
  EXPECT_THAT(kept(first), ElementsAre("step=2.ckpt", "step=4.ckpt"));
  ::testing::internal::CaptureStderr();
  run(8, second, first / "step=4.ckpt");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("of those only best_model_path is known"));
  EXPECT_THAT(kept(first), ElementsAre("step=2.ckpt", "step=4.ckpt"));
  EXPECT_THAT(kept(second), ElementsAre("step=6.ckpt", "step=8.ckpt"));
  run(8, first, first / "step=4.ckpt");
  EXPECT_THAT(kept(first), ElementsAre("step=4.ckpt", "step=6.ckpt", "step=8.ckpt"));
}

// The best is that of epoch 1, before and after.
TEST_F(ModelCheckpointTest, AFolderByAnotherPathOrMovedIsGoneOnIn) {
  const fs::path first = folder_ / "first", second = folder_ / "second";
  const auto run = [&](std::int64_t epochs, const fs::path& dirpath, const fs::path& from) {
    model_->losses = {3, 1, 4, 5};
    auto chosen = options(epochs);
    chosen.run.ckpt_path = from.string();
    return fit(
        chosen,
        {.dirpath = dirpath, .filename = "{epoch}", .monitor = "val_loss", .save_last = SaveLast::kTrue}, 1);
  };
  fs::create_directory_symlink("first", folder_ / "link");
  for (const auto& same :
       {first, folder_ / "." / "first", folder_ / "first" / ".." / "first" / "", folder_ / "link"}) {
    fs::remove_all(first);
    model_->validated_after.clear();  // the losses begin anew
    run(2, first, {});
    ::testing::internal::CaptureStderr();
    const auto callback = run(4, same, first / "last.ckpt");
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("best_model_path"))) << same;
    EXPECT_THAT(kept(first), ElementsAre("epoch=1.ckpt"));
    EXPECT_TRUE(fs::equivalent(callback->best_model_path(), first / "epoch=1.ckpt"));
  }
  fs::rename(first, second);
  EXPECT_EQ(run(4, second, second / "last.ckpt")->best_model_path(), second / "epoch=1.ckpt");
  fs::remove_all(second);
  model_->validated_after.clear();
  run(2, second, {});
  fs::copy(second, first, fs::copy_options::recursive);  // the folder that it names is there as well
  EXPECT_EQ(run(2, first, first / "last.ckpt")->best_model_path(), second / "epoch=1.ckpt");
}

TEST_F(ModelCheckpointTest, OtherRunsInTheFolderGetOtherNames) {
  for (int run = 0; run < 2; ++run)
    fit(options(2), {.dirpath = folder_ / "kept", .filename = "{epoch}", .save_top_k = -1}, 1);
  EXPECT_THAT(kept(folder_ / "kept"),
              ElementsAre("epoch=0-v1.ckpt", "epoch=0.ckpt", "epoch=1-v1.ckpt", "epoch=1.ckpt"));
}

TEST_F(ModelCheckpointTest, RemovesAlsoWhereAPathHasSlashes) {
  fit(options(3), {.dirpath = (folder_ / "kept").string() + "/"}, 1);
  EXPECT_THAT(kept(folder_ / "kept"), ElementsAre("epoch=2-step=3.ckpt"));
  fit(options(3), {.filename = "{epoch}-{val/loss:.1f}"}, 1);
  EXPECT_THAT(kept(), ElementsAre("epoch=2-val/loss=0.0.ckpt"));
  EXPECT_FALSE(fs::exists(checkpoints() / "epoch=1-val"));
  fs::remove_all(checkpoints() / "last.ckpt");
  auto chosen = options(4);
  chosen.run.resume = Resume::kAuto;
  Trainer trainer(chosen);
  trainer.fit(model_, batches(1), batches(1));
  EXPECT_EQ(model_->training_steps, 3 + 3 + 1);
}

TEST_F(ModelCheckpointTest, ANewFitOfATrainerBeginsAnew) {
  const auto callback = std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.monitor = "val_loss"});
  auto chosen = options(2);
  chosen.callbacks = {callback};
  Trainer trainer(chosen);
  model_->losses = {2, 1};
  trainer.fit(model_, batches(1), batches(1));
  const auto first = callback->best_model_path();
  model_ = testing::Slope();
  model_->losses = {9, 8};
  trainer.fit(model_, batches(1), batches(1));
  EXPECT_EQ(callback->best_model_score(), 8);
  EXPECT_EQ(callback->best_k_models().size(), 1U);
  EXPECT_NE(callback->best_model_path(), first);
  EXPECT_TRUE(fs::exists(first));
}

TEST_F(ModelCheckpointTest, ThoseOfAModuleAllRunAndAreTheRunsOwn) {
  struct Own : testing::SlopeImpl {
    std::vector<std::shared_ptr<Callback>> configure_callbacks() override { return {least, most}; }
    std::shared_ptr<ModelCheckpoint> least = std::make_shared<ModelCheckpoint>(
        ModelCheckpointOptions{.filename = "least-{epoch}", .monitor = "val_loss"});
    std::shared_ptr<ModelCheckpoint> most = std::make_shared<ModelCheckpoint>(
        ModelCheckpointOptions{.filename = "most-{epoch}", .monitor = "val_loss", .mode = "max"});
  };
  const auto own = std::make_shared<Own>();
  own->losses = {2, 1, 3};
  Trainer trainer(options(3));
  trainer.fit(own, batches(1), batches(1));
  EXPECT_THAT(kept(), ElementsAre("least-epoch=1.ckpt", "most-epoch=2.ckpt"));
  EXPECT_EQ(trainer.checkpoint_callback(), own->least.get());
  trainer.test(own, batches(1), "best");
  EXPECT_EQ(own->weight.item<double>(), -2);
  trainer.fit(model_, batches(1));
  EXPECT_NE(trainer.checkpoint_callback(), own->least.get());
}

// A file that is in the way is no checkpoint, and not replaced.
TEST_F(ModelCheckpointTest, WhatCouldNotBeWrittenIsNotTheBest) {
  for (const bool in_background : {false, true}) {
    fs::remove_all(run_dir());
    fs::create_directories(checkpoints());
    std::ofstream(checkpoints() / "epoch=1.ckpt") << "in the way";
    model_ = testing::Slope();
    model_->losses = {5, 4, 6};
    auto chosen = options(3);
    chosen.async_checkpoint = in_background;
    const auto callback =
        fit(chosen, {.filename = "{epoch}", .monitor = "val_loss", .enable_version_counter = false}, 1);
    EXPECT_EQ(callback->best_model_path(), checkpoints() / "epoch=0.ckpt") << in_background;
    EXPECT_EQ(callback->best_model_score(), 5);
    EXPECT_EQ(Checkpoint(callback->best_model_path()).info().global_step, 1);
    EXPECT_EQ(callback->best_k_models().size(), 1U);
  }
}

}  // namespace
}  // namespace lockstep
