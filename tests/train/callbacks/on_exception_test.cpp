// What is saved of a fit that fails: by one rank, by all together, by those that are left.
#include <csignal>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/testing/fork_ranks.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "train/callbacks/failing_fit.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::Count;
using testing::Failure;
using testing::fork_ranks;
using testing::ones;
using testing::quiet_options;
using testing::weight_in;

class OnException : public ::testing::Test {
 protected:
  fs::path run_dir() const { return folder_.path() / "run"; }
  fs::path checkpoints() const { return run_dir() / "checkpoints"; }
  TrainerOptions options(std::shared_ptr<Callback> callback) {
    return quiet_options(run_dir(), {std::move(callback)});
  }
  void fail(TrainerOptions chosen, const Failure& failure, bool validates = false) {
    Count model;
    model->failure = failure;
    const auto val = validates ? std::optional(ones(2)) : std::nullopt;
    test::expect_error<std::runtime_error>([&] { Trainer(chosen).fit(model, ones(6), val); }, {"scripted"});
  }
  // What the run comes to that goes on from there.
  double weight_after(TrainerOptions chosen, const fs::path& from) {
    Count model;
    Trainer trainer(chosen);
    trainer.fit(model, ones(6), std::nullopt, from);
    EXPECT_EQ(trainer.current_epoch(), 1);
    return model->weight.item<double>();
  }
  test::TemporaryFolder folder_;
};

TEST_F(OnException, ARunGoesOnWithTheBatchThatFailed) {
  const auto callback = std::make_shared<OnExceptionCheckpoint>();
  fail(options(callback), {.batch = 3});
  EXPECT_EQ(callback->saved(), SavedAfterFailure::kRun);
  EXPECT_EQ(callback->ckpt_path(), checkpoints() / "on_exception.ckpt");
  EXPECT_EQ(weight_in(callback->ckpt_path()), 3);
  EXPECT_EQ(weight_after(options(callback), callback->ckpt_path()), 6);
  EXPECT_FALSE(fs::exists(callback->ckpt_path()));  // all went well
}

TEST_F(OnException, TheCheckpointSaysWhereTheRunIs) {
  for (const std::int64_t accumulate : {1, 2, 3})
    for (const std::int64_t batch : {0, 1, 2, 4}) {
      SCOPED_TRACE(std::to_string(accumulate) + " " + std::to_string(batch));
      const auto callback = std::make_shared<OnExceptionCheckpoint>();
      auto chosen = options(callback);
      chosen.accumulate_grad_batches = accumulate;
      fail(chosen, {.batch = batch});
      const auto loops = Checkpoint(callback->ckpt_path()).entry("loops");
      const auto count = [&](const std::string& key) { return loops.get<std::int64_t>(key); };
      EXPECT_EQ(count("epoch"), 0);
      EXPECT_EQ(count("batches"), batch - batch % accumulate);
      EXPECT_EQ(count("batches_before"), 0);
      EXPECT_EQ(count("global_step"), batch / accumulate);
      EXPECT_EQ(count("batches_that_stepped"), batch / accumulate);
      EXPECT_EQ(count("evaluation_batches"), 0);
      EXPECT_EQ(loops.get<std::string>("phase"), "batches");
      EXPECT_EQ(loops.get<std::string>("validation_phase"), "none");
      fs::remove_all(run_dir());
    }
}

TEST_F(OnException, AShortTryLeavesItAlone) {
  const auto callback = std::make_shared<OnExceptionCheckpoint>();
  fail(options(callback), {.batch = 3});
  auto chosen = options(callback);
  chosen.fast_dev_run = true;
  Trainer(chosen).fit(Count(), ones(6));
  EXPECT_TRUE(fs::exists(callback->ckpt_path()));
}

TEST_F(OnException, ASearchLeavesItToTheFitThatFollows) {
  const auto callback = std::make_shared<OnExceptionCheckpoint>();
  fail(options(callback), {.batch = 3});
  Trainer trainer(options(callback));
  Count model;
  Tuner(trainer).lr_find(model, ones(6), {.num_training = 4});
  ASSERT_TRUE(fs::exists(callback->ckpt_path()));
  EXPECT_EQ(weight_after(options(callback), "last"), 6);
}

TEST_F(OnException, LastAndResumeFindIt) {
  for (const char* ckpt_path : {"last", ""}) {
    const auto callback = std::make_shared<OnExceptionCheckpoint>();
    fail(options(callback), {.batch = 3});
    auto chosen = options(callback);
    chosen.run.resume = Resume::kAuto;
    EXPECT_EQ(weight_after(chosen, ckpt_path), 6) << ckpt_path;
    fs::remove_all(run_dir());
  }
}

// The window of micro-batches is trained on again from its first one: its gradients are not known.
TEST_F(OnException, AWindowThatWasCutIsBegunAnew) {
  for (const auto place : {Failure::Place::kTrainingStep, Failure::Place::kBackward}) {
    const auto callback = std::make_shared<OnExceptionCheckpoint>();
    auto chosen = options(callback);
    chosen.accumulate_grad_batches = 3;
    fail(chosen, {.batch = 5, .place = place});
    EXPECT_EQ(Checkpoint(callback->ckpt_path()).entry("loops").get<std::int64_t>("batches"), 3);
    EXPECT_EQ(weight_after(chosen, callback->ckpt_path()), 2);
    fs::remove_all(run_dir());
  }
}

TEST_F(OnException, ABatchWhoseOptimizerHasSteppedIsDone) {
  const auto callback = std::make_shared<OnExceptionCheckpoint>();
  fail(options(callback), {.batch = 3, .place = Failure::Place::kBatchEnd});
  EXPECT_EQ(weight_in(callback->ckpt_path()), 4);
  EXPECT_EQ(weight_after(options(callback), callback->ckpt_path()), 6);
}

TEST_F(OnException, AlsoInTheValidationWithinFit) {
  const auto callback = std::make_shared<OnExceptionCheckpoint>();
  fail(options(callback), {.batch = 1, .place = Failure::Place::kValidation}, /*validates=*/true);
  EXPECT_EQ(weight_in(callback->ckpt_path()), 6);
}

TEST_F(OnException, NothingIsSavedBeforeTheTrainingBegins) {
  struct Early : Callback {
    void on_fit_start(TrainContext&) override { throw std::runtime_error("early"); }
  };
  const auto callback = std::make_shared<OnExceptionCheckpoint>();
  auto chosen = options(callback);
  chosen.callbacks.push_back(std::make_shared<Early>());
  EXPECT_THROW(Trainer(chosen).fit(Count(), ones(2)), std::runtime_error);
  EXPECT_EQ(callback->saved(), SavedAfterFailure::kNothing);
  EXPECT_TRUE(fs::is_empty(checkpoints()));
}

TEST_F(OnException, CheckpointsMustBeAskedForDifferently) {
  struct Wrong : Callback {
    void on_exception(TrainContext& context, const std::exception&) override {
      try {
        context.save_checkpoint("x.ckpt");
      } catch (const ConfigError& error) {
        refusal = error.what();
      }
    }
    std::string refusal;
  };
  const auto callback = std::make_shared<Wrong>();
  fail(options(callback), {.batch = 1});
  EXPECT_THAT(callback->refusal, ::testing::HasSubstr("save_after_failure()"));
}

TEST_F(OnException, NamesOptionsThatAreOutOfRange) {
  test::expect_error<ConfigError>([] { OnExceptionCheckpoint callback({.filename = ""}); }, {"filename"});
  test::expect_error<ConfigError>([] { OnExceptionCheckpoint callback({.deadline = -1ms}); }, {"deadline"});
}

TEST_F(OnException, ModelCheckpointSavesUnderTheNameOfTheMoment) {
  const auto callback = std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.save_on_exception = true});
  fail(options(callback), {.batch = 3});
  EXPECT_EQ(weight_in(checkpoints() / "epoch=0-step=3.ckpt"), 3);
  EXPECT_EQ(weight_after(options(callback), checkpoints() / "epoch=0-step=3.ckpt"), 6);
}

TEST_F(OnException, ModelCheckpointDoesNotSaveAStepTwice) {
  const auto callback = std::make_shared<ModelCheckpoint>(
      ModelCheckpointOptions{.every_n_train_steps = 3, .save_on_exception = true});
  fail(options(callback), {.batch = 3});
  const auto loops = Checkpoint(checkpoints() / "epoch=0-step=3.ckpt").entry("loops");
  EXPECT_EQ(loops.get<std::string>("phase"), "batch_end");  // as the hook of the batch has written it
}

// Argument: "FOLDER RANK": that rank fails, or all with -1, or it is killed with RANK + 100.
LOCKSTEP_RANK_BODY(fit_that_fails)(Communicator comm, std::string argument)->std::string {
  std::istringstream words(argument);
  std::string folder;
  int rank = 0;
  words >> folder >> rank;
  struct Kill : Callback {
    explicit Kill(int rank_) : rank(rank_) {}
    void on_train_batch_start(StepContext& step) override {
      if (step.batch_idx() == 3 && step.global_rank() == rank) ::raise(SIGKILL);
    }
    int rank;
  };
  const auto callback = std::make_shared<OnExceptionCheckpoint>(OnExceptionCheckpointOptions{.deadline = 2s});
  auto options = quiet_options(fs::path(folder) / "run", {callback, std::make_shared<Kill>(rank - 100)});
  options.strategy = Ddp{.timeout = 30s};
  options.devices = comm.size();
  Count model;
  if (rank < 100) model->failure = Failure{.batch = 3, .rank = rank};
  try {
    Trainer(options).fit(model, ones(6 * comm.size()));
  } catch (const std::exception& error) {
    return std::to_string(static_cast<int>(callback->saved())) + " " + error.what();
  }
  return "no failure";
}

class FailingRanks : public OnException {
 protected:
  std::vector<std::string> results(int ranks, int failing) {
    std::vector<std::string> found;
    for (const auto& rank :
         fork_ranks(ranks, "fit_that_fails", folder_.path().string() + " " + std::to_string(failing)))
      found.push_back(rank.result);
    return found;
  }
  fs::path full() const { return checkpoints() / "on_exception.ckpt"; }
  fs::path weights() const { return checkpoints() / "on_exception-weights.ckpt"; }
};

TEST_F(FailingRanks, AllTogetherSaveTheRun) {
  EXPECT_THAT(results(2, -1), ::testing::Each("2 scripted"));
  EXPECT_EQ(Checkpoint(full()).info().world_size, 2);
  EXPECT_EQ(weight_in(full()), 3);
  EXPECT_EQ(Checkpoint(full()).entry("loops").get<std::int64_t>("batches"), 3);
  EXPECT_FALSE(fs::exists(weights()));
}

// It waits for two seconds at most, of the thirty that the others would.
TEST_F(FailingRanks, OneAloneSavesItsWeights) {
  for (const int failing : {0, 1}) {
    const auto start = std::chrono::steady_clock::now();
    const auto found = results(3, failing);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 25s);
    for (int rank = 0; rank < 3; ++rank) {
      const auto* what = rank == failing ? "1 scripted" : "[comm]";
      EXPECT_THAT(found[static_cast<std::size_t>(rank)], ::testing::HasSubstr(what));
    }
    EXPECT_EQ(weight_in(weights()), 3);
    EXPECT_FALSE(fs::exists(full()));
    fs::remove_all(run_dir());
  }
}

TEST_F(FailingRanks, OneOfThoseThatLostAnotherSavesItsWeights) {
  for (const int killed : {0, 1}) {
    const auto found = results(3, 100 + killed);
    const std::size_t writer = killed == 0 ? 1 : 0;
    EXPECT_THAT(found[writer], ::testing::StartsWith("1 "));
    EXPECT_THAT(found[2], ::testing::StartsWith("0 "));
    EXPECT_EQ(weight_in(weights()), 3);
    fs::remove_all(run_dir());
  }
}

}  // namespace
}  // namespace lockstep
