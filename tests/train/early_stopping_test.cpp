// When EarlyStopping ends a fit: Lightning's vectors.
#include <cmath>
#include <limits>

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

TEST_F(EarlyStoppingTest, AMissingMetricIsNamed) {
  EarlyStoppingOptions wanted{.monitor = "val_los"};
  auto chosen = options();
  chosen.callbacks = {std::make_shared<EarlyStopping>(wanted)};
  model_->losses = {1};
  test::expect_error<ConfigError>([&] { Trainer(chosen).fit(model_, batches(1), batches(1)); },
                                  {"val_los", "val_loss"});
  wanted.strict = false;
  chosen.callbacks = {std::make_shared<EarlyStopping>(wanted)};
  Trainer(chosen).fit(model_, batches(1), batches(1));
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

}  // namespace
}  // namespace lockstep
