// When EarlyStopping ends a fit: Lightning's vectors.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "support/expect_error.h"
#include "train/slope.h"

namespace lockstep {
namespace {

using testing::SlopeTest;

class EarlyStoppingTest : public SlopeTest {
 protected:
  std::shared_ptr<EarlyStopping> fit(std::vector<double> losses, EarlyStoppingOptions wanted) {
    wanted.monitor = "val_loss";
    model_ = testing::Slope();
    model_->losses = std::move(losses);
    const auto callback = std::make_shared<EarlyStopping>(wanted);
    auto chosen = options(static_cast<std::int64_t>(model_->losses.size()) + 20);
    chosen.enable_checkpointing = false;
    chosen.callbacks = {callback};
    Trainer trainer(chosen);
    trainer.fit(model_, batches(1), batches(1));
    epochs_ = trainer.current_epoch();
    return callback;
  }
  std::int64_t epochs_ = 0;
};

TEST_F(EarlyStoppingTest, PatienceIsLightnings) {
  const std::vector<std::tuple<std::vector<double>, int, std::int64_t>> vectors{
      {{6, 5, 5, 5, 5, 5}, 3, 4},
      {{6, 5, 4, 4, 3, 3}, 1, 3},
      {{6, 5, 6, 5, 5, 5}, 3, 4},
      {{8, 4, 2, 3, 4, 5, 8, 10}, 3, 5}};
  for (const auto& [losses, patience, last_epoch] : vectors) {
    const auto callback = fit(losses, {.patience = patience});
    EXPECT_EQ(callback->stopped_epoch(), last_epoch);
    EXPECT_EQ(epochs_, last_epoch + 1);
    EXPECT_EQ(callback->stopping_reason(), StoppingReason::kPatienceExhausted);
    EXPECT_NE(callback->stopping_reason_message().find("val_loss"), std::string::npos);
  }
}

TEST_F(EarlyStoppingTest, ThresholdsAreLightnings) {
  auto callback = fit({9, 8, 7, 6, 5, 6, 4, 3, 2, 1}, {.stopping_threshold = 2.9});
  EXPECT_EQ(callback->stopped_epoch(), 8);
  EXPECT_EQ(callback->stopping_reason(), StoppingReason::kStoppingThreshold);
  callback = fit({9, 4, 2, 16, 32, 64}, {.divergence_threshold = 15.9});
  EXPECT_EQ(callback->stopped_epoch(), 3);
  EXPECT_EQ(callback->stopping_reason(), StoppingReason::kDivergenceThreshold);
}

TEST_F(EarlyStoppingTest, WhatIsNotFiniteStops) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    const auto callback = fit({4, 3, bad, 2, 1}, {});
    EXPECT_EQ(callback->stopped_epoch(), 2);
    EXPECT_EQ(callback->stopping_reason(), StoppingReason::kNonFinite);
  }
}

TEST_F(EarlyStoppingTest, SmallGainsDoNotCount) {
  const auto callback = fit({5, 4.95, 4.9, 4.85}, {.min_delta = 0.1, .patience = 2});
  EXPECT_EQ(callback->stopped_epoch(), 2);
  EXPECT_EQ(callback->best_score(), 5);
}

TEST_F(EarlyStoppingTest, BarebonesIsSaidOnce) {
  auto chosen = options(4);
  chosen.barebones = true;
  chosen.callbacks = {std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "val_loss"})};
  model_->losses = {1, 2, 3, 4};
  ::testing::internal::CaptureStderr();
  Trainer(chosen).fit(model_, batches(1), batches(1));
  const auto said = ::testing::internal::GetCapturedStderr();
  const auto first = said.find("\"val_loss\" was not logged");
  ASSERT_NE(first, said.npos) << said;
  EXPECT_EQ(said.find("was not logged", first + 20), said.npos) << said;
}

TEST_F(EarlyStoppingTest, AMissingMetricIsNamed) {
  EarlyStoppingOptions wanted{.monitor = "val_los"};
  auto chosen = options();
  chosen.callbacks = {std::make_shared<EarlyStopping>(wanted)};
  model_->losses = {1};
  test::expect_error<ConfigError>([&] { Trainer(chosen).fit(model_, batches(1), batches(1)); },
                                  {"val_los", "val_loss"});
  wanted.strict = false;
  chosen.callbacks = {std::make_shared<EarlyStopping>(wanted)};
  ::testing::internal::CaptureStderr();
  Trainer(chosen).fit(model_, batches(1), batches(1));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("the monitored metric \"val_los\" was not logged; there are"));
}

TEST_F(EarlyStoppingTest, OptionsAreChecked) {
  test::expect_error<ConfigError>([] { EarlyStopping callback({}); }, {"monitor"});
  test::expect_error<ConfigError>([] { EarlyStopping callback({.monitor = "x", .patience = -1}); },
                                  {"patience", "-1"});
}

TEST_F(EarlyStoppingTest, StateGoesOn) {
  EarlyStopping first({.monitor = "x", .patience = 7});
  StateTree state = first.state();
  state.set("wait_count", std::int64_t{2});
  state.set("best_score", 0.5);
  EarlyStopping second({.monitor = "x", .patience = 1});
  second.load_state(state);
  EXPECT_EQ(second.wait_count(), 2);
  EXPECT_EQ(second.best_score(), 0.5);
  EXPECT_EQ(second.state().get<std::int64_t>("patience"), 1);
}

TEST_F(EarlyStoppingTest, StateSaysWhy) {
  const auto first = fit({1, 2, 3}, {.patience = 2});
  EarlyStopping second({.monitor = "val_loss"});
  second.load_state(first->state());
  EXPECT_EQ(second.stopping_reason(), StoppingReason::kPatienceExhausted);
  EXPECT_EQ(second.stopping_reason_message(), first->stopping_reason_message());
  EXPECT_FALSE(second.stopping_reason_message().empty());
}

TEST_F(EarlyStoppingTest, SaysNothingOfAFitThatEndsWell) {
  const auto callback = std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "val_loss"});
  auto chosen = options(3);
  chosen.callbacks = {callback};
  model_->losses = {3, 2, 1};
  Trainer(chosen).fit(model_, batches(1), batches(1));
  EXPECT_EQ(callback->stopping_reason(), StoppingReason::kNotStopped);
  EXPECT_EQ(callback->stopping_reason_message(), "");
  EXPECT_EQ(callback->stopped_epoch(), 0);
}

// Logs, at the end of each training epoch, the next of its values.
struct Logs final : Callback {
  Logs(std::string name_, std::vector<double> values_) : name(std::move(name_)), values(std::move(values_)) {}
  void on_train_epoch_end(TrainContext& context) override {
    const auto epoch = std::min(static_cast<std::size_t>(context.current_epoch()), values.size() - 1);
    context.log(name, values[epoch]);
  }
  std::string name;
  std::vector<double> values;
};

TEST_F(EarlyStoppingTest, OneOfSeveralIsEnough) {
  const auto improves = std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "abc"});
  const auto stays = std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "cba"});
  for (const bool first : {true, false}) {
    auto chosen = options(10);
    chosen.callbacks = {std::make_shared<Logs>("abc", std::vector<double>{8, 4, 2, 3, 4, 5, 8, 10}),
                        std::make_shared<Logs>("cba", std::vector<double>{0}), first ? improves : stays,
                        first ? stays : improves};
    Trainer trainer(chosen);
    trainer.fit(model_, batches(1));
    EXPECT_EQ(trainer.current_epoch(), 4);
    EXPECT_EQ(stays->stopped_epoch(), 3);
    EXPECT_EQ(improves->stopping_reason(), StoppingReason::kNotStopped);
  }
}

TEST_F(EarlyStoppingTest, WatchesTrainingWhereThereIsNoValidation) {
  const std::vector<std::tuple<std::vector<double>, int, std::int64_t>> vectors{
      {{6, 5, 5, 5, 5, 5}, 3, 4}, {{6, 5, 4, 4, 3, 3}, 1, 3}, {{6, 5, 6, 5, 5, 5}, 3, 4}};
  for (const auto& [values, patience, last_epoch] : vectors) {
    const auto callback = std::make_shared<EarlyStopping>(
        EarlyStoppingOptions{.monitor = "x", .patience = patience, .check_on_train_epoch_end = true});
    auto chosen = options(20);
    chosen.callbacks = {std::make_shared<Logs>("x", values), callback};
    Trainer trainer(chosen);
    trainer.fit(model_, batches(1));
    EXPECT_EQ(trainer.current_epoch(), last_epoch + 1);
    EXPECT_EQ(callback->stopped_epoch(), last_epoch);
  }
}

TEST_F(EarlyStoppingTest, LooksAtEachValidationWhereTheyAreNotOncePerEpoch) {
  const auto run = [&](TrainerOptions chosen, Trainer* found) {
    chosen.callbacks = {
        std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "val_loss", .patience = 1})};
    model_ = testing::Slope();
    model_->losses = {1};
    *found = Trainer(chosen);
    found->fit(model_, batches(10), batches(1));
  };
  Trainer trainer(options());
  auto chosen = options(8);
  chosen.val_check_interval = 0.3;
  run(chosen, &trainer);
  EXPECT_EQ(trainer.global_step(), 6);
  chosen = options(8);
  chosen.check_val_every_n_epoch = 2;
  run(chosen, &trainer);
  EXPECT_EQ(trainer.current_epoch(), 4);
}

TEST_F(EarlyStoppingTest, ANewFitOfATrainerBeginsAnew) {
  const auto callback =
      std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "val_loss", .patience = 2});
  auto chosen = options(8);
  chosen.callbacks = {callback};
  Trainer trainer(chosen);
  model_->losses = {1, 2, 3};
  trainer.fit(model_, batches(1), batches(1));
  EXPECT_EQ(trainer.current_epoch(), 3);
  model_ = testing::Slope();
  model_->losses = {9, 8, 7, 6, 5, 4, 3, 2};
  trainer.fit(model_, batches(1), batches(1));
  EXPECT_EQ(trainer.current_epoch(), 8);
  EXPECT_EQ(callback->best_score(), 2);
  EXPECT_EQ(callback->stopping_reason(), StoppingReason::kNotStopped);
}

// The checkpoint of the epoch in which it stopped is one to go on from with more patience, and with no other.
TEST_F(EarlyStoppingTest, ACheckpointOfTheEpochThatItEndedStopsARunWithoutMorePatience) {
  const auto run = [&](int patience, const std::string& from) {
    auto chosen = options(8);
    chosen.callbacks = {
        std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "val_loss", .patience = patience}),
        std::make_shared<ModelCheckpoint>()};
    Trainer trainer(chosen);
    trainer.fit(model_, batches(1), batches(1), from);
    return trainer.current_epoch();
  };
  model_->losses = {1, 2, 3};
  EXPECT_EQ(run(2, {}), 3);
  const auto from = folder_ / "from.ckpt";
  std::filesystem::rename(run_dir() / "checkpoints" / "epoch=2-step=3.ckpt", from);
  EXPECT_EQ(run(100, from), 8);
  EXPECT_EQ(run(3, from), 4);
  model_->losses.clear();  // nothing is validated
  for (const int patience : {2, 1}) EXPECT_EQ(run(patience, from), 3) << patience;
}

// A job that has ended is started again: it finds what it has found, whatever has stopped it.
TEST_F(EarlyStoppingTest, AStoppedRunThatIsRunAgainStopsAtOnce) {
  const std::vector<std::tuple<std::vector<double>, EarlyStoppingOptions, EarlyStoppingOptions>> vectors{
      {{1, 2, 0.5, 0.4, 0.3, 0.2}, {.patience = 1}, {.patience = 2}},
      {{1, std::nan(""), 0.5, 0.4, 0.3, 0.2}, {}, {.check_finite = false}},
      {{1, 0.8, 0.5, 0.4, 0.3, 0.2}, {.stopping_threshold = 0.9}, {.stopping_threshold = 0.1}},
      {{1, 2, 0.5, 0.4, 0.3, 0.2}, {.divergence_threshold = 1.5}, {.divergence_threshold = 3.0}}};
  for (auto [losses, same, other] : vectors) {
    const auto run = [&](EarlyStoppingOptions wanted, bool goes_on) {
      wanted.monitor = "val_loss";
      const auto callback = std::make_shared<EarlyStopping>(wanted);
      auto chosen = options(6);
      chosen.callbacks = {callback};
      model_ = testing::Slope();
      model_->losses.assign(losses.begin() + (goes_on ? 2 : 0), losses.end());
      Trainer trainer(chosen);
      trainer.fit(model_, batches(1), batches(1), goes_on ? "last" : "");
      EXPECT_EQ(callback->stopping_reason() == StoppingReason::kNotStopped, trainer.current_epoch() == 6);
      EXPECT_EQ(callback->stopped_epoch(), trainer.current_epoch() == 6 ? 0 : 1);
      return trainer.current_epoch();
    };
    EXPECT_EQ(run(same, false), 2);
    EXPECT_EQ(run(same, true), 2);
    EXPECT_EQ(run(other, true), 6);
  }
}

// What was due behind the check is done all the same.
TEST_F(EarlyStoppingTest, ARunThatGoesOnFromTheCheckThatStoppedItEndsItsEpoch) {
  struct Saves final : Callback {
    void on_validation_end(TrainContext& context) override {
      if (++validations == 2) context.save_checkpoint(folder);
    }
    void on_train_epoch_end(TrainContext&) override { ++epochs; }
    std::filesystem::path folder;
    int validations = 0, epochs = 0;
  };
  for (const bool goes_on : {false, true}) {
    const auto saves = std::make_shared<Saves>();
    saves->folder = folder_ / (goes_on ? "other.ckpt" : "from.ckpt");
    auto chosen = options(6);
    chosen.val_check_interval = 1;
    chosen.callbacks = {
        std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "val_loss", .patience = 1}), saves};
    model_ = testing::Slope();
    model_->losses = {1, 2, 0.5};
    Trainer trainer(chosen);
    trainer.fit(model_, batches(3), batches(1), goes_on ? (folder_ / "from.ckpt").string() : "");
    EXPECT_EQ(trainer.current_epoch(), 1);
    EXPECT_EQ(trainer.global_step(), 2);
    EXPECT_EQ(saves->epochs, 1);
  }
}

// What ends a run is what it finds when min_epochs are done, whether it was resumed before or not.
TEST_F(EarlyStoppingTest, AnEndThatIsPostponedIsFoundAnew) {
  const std::vector<std::tuple<std::vector<double>, int, std::int64_t>> vectors{
      {{1, 2, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4}, 1, 8},  // better again, and to the end
      {{1, 2, 2, 2, 2, 2, 2, 2}, 1, 5},              // not better until min_epochs are done
      {{1, 2, 0.9, 1, 0.8, 1, 1, 1}, 2, 7},
      {{1, std::nan(""), 0.9, 0.8, 0.9, 0.8, 0.9, 0.9}, 3, 7}};
  for (const auto& [losses, patience, epochs] : vectors) {
    for (const std::int64_t resumed_at : {0, 2, 3, 4}) {
      SCOPED_TRACE(resumed_at);
      const auto run = [&](std::int64_t max_epochs, std::int64_t from) {
        const auto callback = std::make_shared<EarlyStopping>(
            EarlyStoppingOptions{.monitor = "val_loss", .patience = patience});
        auto chosen = options(max_epochs);
        chosen.min_epochs = std::min<std::int64_t>(5, max_epochs);
        chosen.callbacks = {callback};
        model_ = testing::Slope();
        model_->losses.assign(losses.begin() + from, losses.end());
        Trainer trainer(chosen);
        trainer.fit(model_, batches(1), batches(1), from > 0 ? "last" : "");
        EXPECT_TRUE(max_epochs < 8 || (callback->stopped_epoch() > 0) == (epochs < 8));
        return trainer.current_epoch();
      };
      if (resumed_at > 0) run(resumed_at, 0);
      EXPECT_EQ(run(8, resumed_at), epochs);
    }
  }
}

// At the end of an epoch that has validated nothing there is nothing new to find.
TEST_F(EarlyStoppingTest, AValueIsCheckedOnce) {
  const auto callback = std::make_shared<EarlyStopping>(
      EarlyStoppingOptions{.monitor = "val_loss", .patience = 2, .check_on_train_epoch_end = true});
  auto chosen = options(10);
  chosen.check_val_every_n_epoch = 2;
  chosen.callbacks = {callback};
  model_->losses = {1, 2, 3, 4, 5};
  Trainer trainer(chosen);
  trainer.fit(model_, batches(1), batches(1));
  EXPECT_EQ(trainer.current_epoch(), 6);
  EXPECT_EQ(callback->wait_count(), 2);
}

// The stop of another callback, or of the module, stays.
TEST_F(EarlyStoppingTest, TakesBackItsOwnWishAlone) {
  auto chosen = options(8);
  chosen.min_epochs = 5;
  chosen.callbacks = {
      std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "val_loss", .patience = 1}),
      std::make_shared<LambdaCallback>(LambdaHooks{.on_train_epoch_start = [](TrainContext& context) {
        if (context.current_epoch() == 1) context.stop();
      }})};
  model_->losses = {1, 2, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4};
  Trainer trainer(chosen);
  trainer.fit(model_, batches(1), batches(1));
  EXPECT_EQ(trainer.current_epoch(), 5);
}

// There would be nothing to go by, and the fit would never stop.
TEST_F(EarlyStoppingTest, GoesByTheEpochWhereNothingIsValidated) {
  for (const bool says_when : {false, true}) {
    EarlyStoppingOptions wanted{.monitor = "train_loss", .patience = 1, .mode = MonitorMode::kMax};
    if (says_when) wanted.check_on_train_epoch_end = false;
    const auto callback = std::make_shared<EarlyStopping>(wanted);
    auto chosen = options(5);
    chosen.val_check_interval = 0.5;
    chosen.callbacks = {callback};
    Trainer trainer(chosen);
    ::testing::internal::CaptureStderr();
    trainer.fit(testing::Slope(), batches(2));
    const auto said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(trainer.current_epoch(), says_when ? 5 : 2);
    EXPECT_EQ(said.find("it will never stop the fit") != said.npos, says_when) << said;
  }
}

}  // namespace
}  // namespace lockstep
