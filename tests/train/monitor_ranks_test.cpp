// What callbacks monitor on several ranks: all go by what rank 0 has logged.
#include <chrono>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>

#include <lockstep/testing/fork_ranks.h>

#include "support/temporary_folder.h"
#include "train/callbacks/failing_fit.h"
#include "train/trainer_rank.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Each;
using testing::fork_ranks;
using ::testing::HasSubstr;
using ::testing::Not;

struct MonitoredImpl : Module<Example> {
  MonitoredImpl() { weight = register_parameter("weight", torch::zeros({1})); }
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    if (step.is_global_zero()) step.log("of_rank_0", step.batch_idx());
    const double index = static_cast<double>(step.batch_idx());
    if (is_synced) step.log("synced", step.is_global_zero() ? 2 * index : 7 - 2 * index, {.sync_dist = true});
    if (logs_on_all) step.log("of_all", step.batch_idx() * (1 + step.global_rank()));
    if (pause > 0ms) std::this_thread::sleep_for(pause);
    if (step.global_rank() == 1 && step.global_step() == stop_at) step.stop();
    return (weight * batch.data.mean()).sum();
  }
  void validation_step(const Example&, StepContext& step) override {
    const auto epoch = static_cast<std::size_t>(step.current_epoch());
    if (epoch >= losses.size()) return;
    const double own = step.global_rank() == 0 ? losses[epoch] : -10.0 * losses[epoch];
    step.log("val_loss", own, {.sync_dist = is_synced});
  }
  Optimizers configure_optimizers() override {
    if (schedule.empty()) return {.optimizer = SGD{.lr = 1.0}};
    return {.optimizer = SGD{.lr = 1.0},
            .lr_scheduler = LRScheduler{.scheduler = ReduceLROnPlateau{}, .monitor = schedule}};
  }
  torch::Tensor weight;
  std::vector<double> losses;
  std::string schedule;
  bool logs_on_all = false, is_synced = false;
  std::chrono::milliseconds pause{0};
  std::int64_t stop_at = -1;
};
TORCH_MODULE(Monitored);

TrainerOptions options_of(const Communicator& comm, const std::string& folder,
                          std::vector<std::shared_ptr<Callback>> callbacks) {
  testing::become_trainer_rank(comm);
  auto options = testing::quiet_options(fs::path(folder) / "run", std::move(callbacks));
  options.strategy = Ddp{.timeout = 30s};
  options.devices = comm.size();
  return options;
}

std::string result_of(const std::function<std::string()>& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::vector<std::string> results(const char* body, const std::string& argument) {
  std::vector<std::string> found;
  for (const auto& rank : fork_ranks(2, body, argument)) found.push_back(rank.result + rank.error);
  return found;
}

class MonitorOfRanks : public ::testing::Test {
 protected:
  std::string folder() const { return folder_.path().string(); }
  test::TemporaryFolder folder_;
};

// The mean over ranks is 3.5 in every step, whatever rank 0 has.
LOCKSTEP_RANK_BODY(checkpoint_by_synced_steps)(Communicator comm, std::string folder)->std::string {
  const auto best = std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{
      .filename = "{step}-{synced:.2f}", .monitor = "synced", .save_top_k = -1, .every_n_train_steps = 1});
  auto options = options_of(comm, folder, {best});
  options.max_epochs = 1;
  return result_of([&] {
    Monitored model;
    model->is_synced = true;
    Trainer(options).fit(model, testing::ones(8), testing::ones(2));
    std::string names;
    for (const auto& file : fs::directory_iterator(best->best_model_path().parent_path()))
      if (file.path().filename() != "last.ckpt") names += file.path().filename().string() + ' ';
    return names + std::to_string(best->best_model_score().value_or(-1));
  });
}

TEST_F(MonitorOfRanks, IsReducedBeforeACheckpointOfAStep) {
  EXPECT_THAT(results("checkpoint_by_synced_steps", folder()),
              Each(AllOf(HasSubstr("synced=3.50"), Not(HasSubstr("=0.00")), HasSubstr(" 3.5"))));
}

LOCKSTEP_RANK_BODY(checkpoint_by_rank_0)(Communicator comm, std::string folder)->std::string {
  const auto best = std::make_shared<ModelCheckpoint>(
      ModelCheckpointOptions{.monitor = "of_rank_0", .mode = MonitorMode::kMax, .every_n_train_steps = 2});
  auto options = options_of(comm, folder, {best});
  return result_of([&] {
    Trainer(options).fit(Monitored(), testing::ones(12), testing::ones(2));
    return best->best_model_path().filename().string();
  });
}

TEST_F(MonitorOfRanks, AMetricThatRank0AloneHasChoosesCheckpoints) {
  EXPECT_THAT(results("checkpoint_by_rank_0", folder()), Each("epoch=0-step=6.ckpt"));
}

LOCKSTEP_RANK_BODY(plateau_by_rank_0)(Communicator comm, std::string argument)->std::string {
  const auto space = argument.find(' ');
  auto options = options_of(comm, argument.substr(space + 1), {});
  Monitored model;
  model->schedule = argument.substr(0, space);
  return result_of([&] {
    Trainer(options).fit(model, testing::ones(4), testing::ones(2));
    return std::string("ended");
  });
}

TEST_F(MonitorOfRanks, AMetricThatRank0AloneHasDrivesASchedule) {
  EXPECT_THAT(results("plateau_by_rank_0", "of_rank_0 " + folder()), Each("ended"));
}

TEST_F(MonitorOfRanks, AScheduleNamesWhatNobodyLogs) {
  EXPECT_THAT(results("plateau_by_rank_0", "nothing " + folder()),
              Each(AllOf(HasSubstr("\"nothing\" was not logged"), HasSubstr("of_rank_0"))));
}

LOCKSTEP_RANK_BODY(stop_by_nothing)(Communicator comm, std::string folder)->std::string {
  auto options =
      options_of(comm, folder, {std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "nothing"})});
  return result_of([&] {
    Trainer(options).fit(Monitored(), testing::ones(4), testing::ones(2));
    return std::string("ended");
  });
}

TEST_F(MonitorOfRanks, WhatIsMissingIsRefusedOnAllAlike) {
  EXPECT_THAT(results("stop_by_nothing", folder()),
              Each(AllOf(HasSubstr("\"nothing\" was not logged"), HasSubstr("of_rank_0"))));
}

// Argument: "1 FOLDER" with sync_dist.
LOCKSTEP_RANK_BODY(stop_early)(Communicator comm, std::string argument)->std::string {
  const auto early =
      std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "val_loss", .patience = 1});
  auto options = options_of(comm, argument.substr(2), {early});
  options.max_epochs = 6;
  Monitored model;
  model->losses = {5, 4, 3, 6, 2, 1};  // of rank 1: -50, -40, ...
  model->is_synced = argument[0] == '1';
  return result_of([&] {
    Trainer trainer(options);
    trainer.fit(model, testing::ones(4), testing::ones(2));
    return std::to_string(trainer.current_epoch()) + " " + std::to_string(early->stopped_epoch());
  });
}

TEST_F(MonitorOfRanks, AllStopByTheLossOfRank0) {
  EXPECT_THAT(results("stop_early", "0 " + folder()), Each("4 3"));
}

TEST_F(MonitorOfRanks, AllStopByTheMeanWhereItIsSynced) {
  EXPECT_THAT(results("stop_early", "1 " + folder()), Each("2 1"));
}

// Patience is over behind step 8; step 10 is the first at which the fit may end. Saved behind step 9.
LOCKSTEP_RANK_BODY(stop_is_postponed)(Communicator comm, std::string folder)->std::string {
  const auto saved = fs::path(folder) / "at_9.ckpt";
  const auto run = [&](const std::string& from) {
    const auto save = std::make_shared<LambdaCallback>(
        LambdaHooks{.on_train_batch_end = [&](StepContext& step, const TrainOutput&) {
          if (step.global_step() == 9) step.save_checkpoint(saved);
        }});
    auto options = options_of(
        comm, folder,
        {save, std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "val_loss", .patience = 1})});
    options.max_epochs = 6;
    options.min_steps = 10;
    Monitored model;
    model->losses = {1, 2, 2, 2, 2, 2};
    Trainer trainer(options);
    trainer.fit(model, testing::ones(8), testing::ones(2), from);
    return std::to_string(trainer.global_step()) + " ";
  };
  return result_of([&] {
    const auto whole = run("");
    return whole + run(saved);
  });
}

TEST_F(MonitorOfRanks, AnEndThatIsPostponedComesAlikeInARunThatGoesOn) {
  EXPECT_THAT(results("stop_is_postponed", folder()), Each("10 10 "));
}

LOCKSTEP_RANK_BODY(stop_beside_a_clock)(Communicator comm, std::string folder)->std::string {
  auto options = options_of(comm, folder, {std::make_shared<Timer>(TimerOptions{.duration = 1h})});
  options.min_epochs = 0;
  options.min_steps = 60;
  options.log_every_n_steps = 10;
  Monitored model;
  model->pause = 40ms;
  model->stop_at = 5;
  return result_of([&] {
    Trainer trainer(options);
    trainer.fit(model, testing::ones(2 * 80));
    return std::to_string(trainer.global_step());
  });
}

// The clock is asked on all ranks also when one of them wishes to stop.
TEST_F(MonitorOfRanks, AWishOfOneRankDoesNotDisturbTheClock) {
  EXPECT_THAT(results("stop_beside_a_clock", folder()), Each("60"));
}

// Argument: "TOP_K EPOCHS INTERVAL FOLDER".
LOCKSTEP_RANK_BODY(save_the_best)(Communicator comm, std::string argument)->std::string {
  std::istringstream words(argument);
  int top_k = 0;
  std::int64_t epochs = 0;
  double interval = 0;
  std::string folder;
  words >> top_k >> epochs >> interval >> folder;
  const auto best = std::make_shared<ModelCheckpoint>(
      ModelCheckpointOptions{.monitor = "of_all", .save_top_k = top_k, .mode = MonitorMode::kMax});
  auto options = options_of(comm, folder, {best});
  options.max_epochs = epochs;
  options.val_check_interval = interval;
  Monitored model;
  model->logs_on_all = true;
  return result_of([&] {
    Trainer(options).fit(model, testing::ones(2 * 10), testing::ones(2));
    return best->best_model_path().filename().string() + " " + std::to_string(best->best_k_models().size());
  });
}

TEST_F(MonitorOfRanks, KeepTheSameCheckpoints) {
  EXPECT_THAT(results("save_the_best", "1 1 1.0 " + folder()), Each("epoch=0-step=10.ckpt 1"));
  fs::remove_all(folder_ / "run");
  EXPECT_THAT(results("save_the_best", "2 2 0.3 " + folder()), Each("epoch=0-step=9.ckpt 2"));
}

}  // namespace
}  // namespace lockstep
