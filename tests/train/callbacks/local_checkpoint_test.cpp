// LocalCheckpoint as a part of a Trainer; tests/programs/local_checkpoint_test.py loses ranks and nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

#include "cluster/scoped_variables.h"
#include "support/expect_error.h"
#include "train/slope.h"

namespace lockstep {
namespace {

using testing::SlopeTest;

// Notes the steps of what it is given, and throws what it is told to.
struct Capture final : Callback {
  void on_train_batch_end(StepContext& step, const TrainOutput&) override {
    step.capture_checkpoint([this](const CheckpointState& state, const CheckpointInfo& info) {
      EXPECT_TRUE(state.shared.contains("optimizer"));
      EXPECT_TRUE(state.own.contains("random"));
      steps.push_back(info.global_step);
      if (fails) throw IoError("test", {.what = "the store is full"});
    });
  }
  std::vector<std::int64_t> steps;
  bool fails = false;
};

struct CaptureInBatch final : Callback {
  void on_after_backward(StepContext& step) override {
    step.capture_checkpoint([](const CheckpointState&, const CheckpointInfo&) {});
  }
};

class LocalCheckpointCallback : public SlopeTest {
 protected:
  std::filesystem::path memory() const { return folder_ / "memory"; }
  std::shared_ptr<LocalCheckpoint> local(std::int64_t every_n_train_steps) const {
    return std::make_shared<LocalCheckpoint>(
        LocalCheckpointOptions{.every_n_train_steps = every_n_train_steps, .folder = memory()});
  }
  std::vector<std::string> kept() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(memory()))
      if (entry.path().filename().string().starts_with("step=")) names.push_back(entry.path().filename());
    return names;
  }
};

TEST_F(LocalCheckpointCallback, KeepsTheLatestOfAFitThatFails) {
  auto chosen = options();
  const auto callback = local(2);
  chosen.callbacks = {callback};
  chosen.run.fault = {.kind = FaultKind::kThrow, .step = 5};
  test::expect_error<std::runtime_error>([&] { Trainer(chosen).fit(model_, batches(8)); }, {"injected"});
  EXPECT_EQ(callback->checkpoints(), nullptr) << "which hold the group";
  EXPECT_EQ(kept(), std::vector<std::string>({"step=4"}));
}

// torchrun's variable, and a fit in each of two lives.
class LocalCheckpointLives : public LocalCheckpointCallback {
 protected:
  static testing::Variables life(const char* number) { return {{"TORCHELASTIC_RESTART_COUNT", number}}; }
  TrainerOptions chosen() {
    auto chosen = options();
    chosen.enable_checkpointing = false;
    chosen.local_checkpoint = {.every_n_train_steps = 2, .folder = memory()};
    return chosen;
  }
  void fail_in_first_life() {
    const testing::ScopedVariables scope(life("0"));
    auto failing = chosen();
    failing.run.fault = {.kind = FaultKind::kThrow, .step = 5};
    test::expect_error<std::runtime_error>([&] { Trainer(failing).fit(model_, batches(8)); }, {"injected"});
    EXPECT_EQ(kept(), std::vector<std::string>({"step=4"}));
  }
  int steps_of_second_life() {
    const testing::ScopedVariables scope(life("1"));
    testing::Slope again;
    Trainer(chosen()).fit(again, batches(8));
    return again->training_steps;
  }
};

TEST_F(LocalCheckpointLives, TheSecondGoesOn) {
  fail_in_first_life();
  EXPECT_EQ(steps_of_second_life(), 4);
}

struct BrokenImpl final : testing::SlopeImpl {
  Optimizers configure_optimizers() override { throw std::runtime_error("no optimizer"); }
};
TORCH_MODULE(Broken);

TEST_F(LocalCheckpointLives, AJobForgetsThoseOfAnotherBeforeItCanFail) {
  fail_in_first_life();
  {
    const testing::ScopedVariables scope(life("0"));
    EXPECT_THROW(Trainer(chosen()).fit(Broken(), batches(8)), std::runtime_error);
  }
  EXPECT_EQ(kept(), std::vector<std::string>());
  EXPECT_EQ(steps_of_second_life(), 8);
}

TEST_F(LocalCheckpointLives, WhatIsOlderThanTheJobIsAnothers) {
  fail_in_first_life();
  const auto mark = run_dir() / "checkpoints" / ".job";
  std::filesystem::last_write_time(mark, std::filesystem::file_time_type::clock::now());
  EXPECT_EQ(steps_of_second_life(), 8);
}

// What best_model_path is when training begins.
struct BestAtStart final : Callback {
  explicit BestAtStart(std::shared_ptr<ModelCheckpoint> of) : checkpoint(std::move(of)) {}
  void on_train_start(TrainContext&) override { best = checkpoint->best_model_path(); }
  std::shared_ptr<ModelCheckpoint> checkpoint;
  std::filesystem::path best = "none";
};

TEST_F(LocalCheckpointCallback, AModelCheckpointForgetsWhatNeverCameToTheDisk) {
  for (const bool came : {true, false}) {
    auto chosen = options();
    chosen.run.run_dir = folder_ / (came ? "came" : "lost");
    const auto file = chosen.run.run_dir / "checkpoints" / "epoch=0-step=4.ckpt";
    const auto start = [&](FaultKind fault, Resume resume) {
      const auto disk = std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.every_n_train_steps = 4});
      const auto best = std::make_shared<BestAtStart>(disk);
      chosen.callbacks = {disk, best, local(2)};
      chosen.run.fault = {.kind = fault, .step = 5};
      chosen.run.resume = resume;
      testing::Slope model;
      try {
        Trainer(chosen).fit(model, batches(8));
      } catch (const std::runtime_error& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("injected"));
      }
      return best->best;
    };
    (void)start(FaultKind::kThrow, Resume::kNever);
    ASSERT_TRUE(std::filesystem::exists(file));
    if (!came) std::filesystem::remove_all(file);
    EXPECT_EQ(start(FaultKind::kNone, Resume::kAuto), came ? file : std::filesystem::path());
  }
}

TEST_F(LocalCheckpointCallback, IsNothingOnceAFitHasEndedWell) {
  auto chosen = options();
  chosen.local_checkpoint = {.every_n_train_steps = 2, .folder = memory()};
  Trainer(chosen).fit(model_, batches(8));
  EXPECT_TRUE(std::filesystem::is_empty(memory()));
}

TEST_F(LocalCheckpointCallback, ResumeAutoTakesIt) {
  auto chosen = options();
  chosen.enable_checkpointing = false;
  chosen.local_checkpoint = {.every_n_train_steps = 2, .folder = memory()};
  chosen.run.fault = {.kind = FaultKind::kThrow, .step = 5};
  test::expect_error<std::runtime_error>([&] { Trainer(chosen).fit(model_, batches(8)); }, {"injected"});
  chosen.run.fault = {};
  chosen.run.resume = Resume::kAuto;
  testing::Slope again;
  Trainer trainer(chosen);
  trainer.fit(again, batches(8));
  EXPECT_EQ(again->training_steps, 4);
  EXPECT_EQ(trainer.global_step(), 8);
  EXPECT_EQ(again->weight.item<double>(), -8);
}

TEST_F(LocalCheckpointCallback, IsOneOfItsKind) {
  auto chosen = options();
  chosen.callbacks = {local(2)};
  chosen.local_checkpoint.every_n_train_steps = 2;
  test::expect_error<ConfigError>([&] { Trainer{chosen}; }, {"LocalCheckpoint", "one", "2"});
}

TEST_F(LocalCheckpointCallback, RefusesWhatItCannotKeep) {
  test::expect_error<ConfigError>([&] { local(0); }, {"LocalCheckpoint", "every_n_train_steps", ">= 1", "0"});
  test::expect_error<ConfigError>(
      [] { LocalCheckpoint({.every_n_train_steps = 1, .replication_factor = 0}); },
      {"LocalCheckpoint", "replication_factor", ">= 1", "0"});
}

TEST_F(LocalCheckpointCallback, OthersMayTakeTheSame) {
  const auto capture = std::make_shared<Capture>();
  auto chosen = options();
  chosen.callbacks = {capture};
  Trainer(chosen).fit(model_, batches(3));
  EXPECT_EQ(capture->steps, std::vector<std::int64_t>({1, 2, 3}));
}

TEST_F(LocalCheckpointCallback, WhatTheirStoresCannotTakeEndsNoTraining) {
  const auto capture = std::make_shared<Capture>();
  capture->fails = true;
  auto chosen = options();
  chosen.callbacks = {capture};
  ::testing::internal::CaptureStderr();
  Trainer(chosen).fit(model_, batches(3));
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      ::testing::AllOf(::testing::HasSubstr("the store is full"), ::testing::HasSubstr("training goes on")));
  EXPECT_EQ(capture->steps.size(), 3U);
}

TEST_F(LocalCheckpointCallback, NothingIsTakenInsideABatch) {
  auto chosen = options();
  chosen.callbacks = {std::make_shared<CaptureInBatch>()};
  test::expect_error<ConfigError>([&] { Trainer(chosen).fit(model_, batches(3)); },
                                  {"a checkpoint cannot be taken here"});
}

}  // namespace
}  // namespace lockstep
